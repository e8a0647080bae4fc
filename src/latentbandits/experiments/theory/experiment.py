"""The regret bounds alone, for each problem of the grid."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Executor

from latentbandits.experiments.theory.check import HORIZONS, RUNS, BoundCheck, check_bounds, claims
from latentbandits.options import positive
from latentbandits.report.progress import Progress
from latentbandits.report.report import Report, Table


class TheoryExperiment:
    """Measured regret as a share of each bound, on a grid of S, K, n, sigma."""

    name = "theory"
    help = "the paper's regret bounds (Theorems 1, 2, Corollaries 1, 2) on a grid of problems"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--runs", type=positive, default=RUNS, help=f"per problem (default {RUNS})"
        )
        most = max(HORIZONS)
        parser.add_argument(
            "--horizon", type=positive, default=most,
            help=f"largest number of rounds of a problem (default {most})",
        )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        pass

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        started = time.perf_counter()
        runs, horizon = arguments.runs, arguments.horizon
        checks = check_bounds(arguments.seed, executor, progress, runs, horizon)
        return Report(
            experiment=self.name,
            settings={"runs": runs, "horizon": horizon, "seed": arguments.seed},
            seconds=time.perf_counter() - started,
            policies=[_row(check) for check in checks],
            claims=claims(checks),
            tables=[_table(checks)],
        )


def _row(check: BoundCheck) -> dict[str, object]:
    cell = check.cell
    return {
        "policy": check.policy,
        "setting": f"S={cell.n_states},K={cell.n_actions},n={cell.horizon},sigma={cell.noise:g}",
        "regret": check.regret.mean,
        "regret_stderr": check.regret.stderr,
        "bound": check.bound,
    }


def _table(checks: list[BoundCheck]) -> Table:
    columns = ("theorem", "policy", "S", "K", "n", "sigma", "regret", "bound", "share")
    rows = [
        (
            check.theorem,
            check.policy,
            *(str(v) for v in (check.cell.n_states, check.cell.n_actions, check.cell.horizon)),
            f"{check.cell.noise:g}",
            str(check.regret),
            f"{check.bound:.0f}",
            f"{check.share:.0%}",
        )
        for check in checks
    ]
    return Table("Regret against its bound", columns, rows)
