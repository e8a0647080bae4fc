"""Play every policy at both noise levels, and check the theory on a grid of problems."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from latentbandits.experiments import theory
from latentbandits.experiments.claims import check_all
from latentbandits.experiments.synthetic.claims import CLAIMS
from latentbandits.experiments.synthetic.settings import HORIZON, RUNS, SETTINGS, policies
from latentbandits.options import add_simulation_options, windows
from latentbandits.report.progress import Progress
from latentbandits.report.report import Report
from latentbandits.simulation import Results, simulate

if TYPE_CHECKING:
    import polars


class SyntheticExperiment:
    """The paper's Figure 1 and the claims about it."""

    name = "synthetic"
    help = "the paper's synthetic experiment (Section 5.1, Figure 1) and its regret bounds"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_simulation_options(parser, runs=RUNS, horizon=HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        policies(arguments.policies, arguments.horizon)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.experiments.synthetic.figure import draw
        from latentbandits.report.terminal import policy_table

        started = time.perf_counter()
        runs, horizon = arguments.runs, arguments.horizon
        chosen = policies(arguments.policies, horizon)
        results: dict[str, Results] = {}
        for setting in SETTINGS:
            progress.start(f"synthetic, {setting.name}", runs)
            results[setting.name] = simulate(
                chosen,
                setting.environment,
                n_runs=runs,
                horizon=horizon,
                seed=arguments.seed,
                **windows(arguments),
                executor=executor,
                progress=progress.advance,
            )
        rows = {
            name: [policy.row() | {"setting": name} for policy in result.values()]
            for name, result in results.items()
        }
        bounds = theory.check_bounds(arguments.seed, executor, progress, horizon=horizon)
        return Report(
            experiment=self.name,
            settings={
                "runs": runs,
                "horizon": horizon,
                "seed": arguments.seed,
                "policies": list(chosen),
            },
            seconds=time.perf_counter() - started,
            policies=[row for setting_rows in rows.values() for row in setting_rows],
            claims=check_all(CLAIMS, results) + theory.claims(bounds),
            tables=[policy_table(f"{name}, {runs} runs", r) for name, r in rows.items()],
            figures={"synthetic": draw(results, runs)},
            frames={"curves": _curves(results)},
        )


def _curves(results: dict[str, Results]) -> polars.DataFrame:
    """Return columns policy, sigma0, round, mean, stderr, worst_decile_mean."""
    import polars

    return polars.concat(
        results[setting.name].curves().insert_column(1, polars.lit(setting.sigma0).alias("sigma0"))
        for setting in SETTINGS
    )
