"""Plays every policy at every switch probability, with and without knowing of it."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Executor

from latentbandits.experiments.claims import check_all
from latentbandits.experiments.drift.claims import CLAIMS
from latentbandits.experiments.drift.settings import (
    HORIZON,
    PROBABILITIES,
    RUNS,
    policies,
    settings,
)
from latentbandits.experiments.experiment import ProgressBar, Report
from latentbandits.experiments.options import add_simulation_options, choose
from latentbandits.experiments.sweep import metric_table, play, rows


class DriftExperiment:
    """A latent state that switches, between rounds or in pieces."""

    name = "drift"
    help = "a latent state that moves: switching versions of the synthetic problem"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_simulation_options(parser, runs=RUNS, horizon=HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        choose("policy", arguments.policies, policies(0.0, arguments.horizon))

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: ProgressBar
    ) -> Report:
        from latentbandits.experiments.drift.figure import draw

        started = time.perf_counter()
        chosen = choose("policy", arguments.policies, policies(0.0, arguments.horizon))
        results = play(
            self.name, settings(arguments.horizon), chosen, arguments, executor, progress
        )
        return Report(
            experiment=self.name,
            settings={
                "runs": arguments.runs,
                "horizon": arguments.horizon,
                "seed": arguments.seed,
                "policies": chosen,
                "switch_probabilities": list(PROBABILITIES),
            },
            seconds=time.perf_counter() - started,
            policies=rows(results),
            claims=check_all(CLAIMS, results),
            tables=[
                metric_table(f"Regret over {arguments.horizon} rounds, {arguments.runs} runs",
                             results, "regret")
            ],
            figures={"drift": draw(results, arguments.runs)},
        )  # fmt: skip
