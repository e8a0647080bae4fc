"""Play every policy with models of growing error, and with a state missing."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Executor

from latentbandits.experiments.claims import check_all
from latentbandits.experiments.misspecification.claims import CLAIMS
from latentbandits.experiments.misspecification.settings import (
    HORIZON,
    MISSING,
    MODEL_NOISES,
    RUNS,
    name,
    policies,
    settings,
)
from latentbandits.experiments.sweep import metric_table, play, rows
from latentbandits.options import add_simulation_options, choose
from latentbandits.report.progress import Progress
from latentbandits.report.report import Report


class MisspecificationExperiment:
    """Models with wrong means, or with too few states."""

    name = "misspecification"
    help = "models that are wrong: by how much, and with a latent state missing"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_simulation_options(parser, runs=RUNS, horizon=HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        choose("policy", arguments.policies, policies(arguments.horizon))

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.experiments.misspecification.figure import draw

        started = time.perf_counter()
        chosen = choose("policy", arguments.policies, policies(arguments.horizon))
        results = play(
            self.name, settings(arguments.horizon), chosen, arguments, executor, progress
        )
        tables = []
        for n_missing, title in zip(
            MISSING, ("all states known", "4 of 5 states known"), strict=True
        ):
            part = {f"{s:g}": results[name(s, n_missing)] for s in MODEL_NOISES}
            tables.append(metric_table(f"Regret over sigma0, {title}", part, "regret"))
            tables.append(
                metric_table(f"Worst-decile reward, {title}", part, "worst_decile_reward")
            )
        return Report(
            experiment=self.name,
            settings={
                "runs": arguments.runs,
                "horizon": arguments.horizon,
                "seed": arguments.seed,
                "policies": chosen,
                "sigma0": list(MODEL_NOISES),
            },
            seconds=time.perf_counter() - started,
            policies=rows(results),
            claims=check_all(CLAIMS, results),
            tables=tables,
        ).drawn_by(draw)
