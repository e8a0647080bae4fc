"""Play every policy at every switch probability, with and without a model of the switches."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Executor

from latentbandits.experiments.claims import check_all
from latentbandits.experiments.drift.claims import CLAIMS, LONG_CLAIMS, lead_table
from latentbandits.experiments.drift.settings import (
    HORIZON,
    LONG_PROBABILITY,
    LONG_PROBLEM,
    LONGER,
    PROBABILITIES,
    PROBLEM,
    RUNS,
    long_settings,
    policies,
    settings,
)
from latentbandits.experiments.sweep import metric_table, play, rows
from latentbandits.options import add_simulation_options, choose
from latentbandits.report.progress import Progress
from latentbandits.report.report import Report


class DriftExperiment:
    """A latent state that switches, in a Markov chain or piecewise."""

    name = "drift"
    help = "a latent state that moves: switching versions of the synthetic problem"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_simulation_options(parser, runs=RUNS, horizon=HORIZON)

    def check(self, arguments: argparse.Namespace) -> None:
        self._chosen(arguments)

    def _chosen(self, arguments: argparse.Namespace) -> list[str]:
        return choose("policy", arguments.policies, policies(PROBLEM, 0.0, arguments.horizon))

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.experiments.drift.figure import draw

        started = time.perf_counter()
        chosen, horizon = self._chosen(arguments), arguments.horizon
        longer = argparse.Namespace(**vars(arguments) | {"horizon": LONGER * horizon})
        short = play(self.name, settings(horizon), chosen, arguments, executor, progress)
        long = play(self.name, long_settings(longer.horizon), chosen, longer, executor, progress)
        tables = []
        for problem, rounds, results in (
            (PROBLEM, horizon, short),
            (LONG_PROBLEM, longer.horizon, long),
        ):
            where = f"{problem.n_actions} actions, {rounds} rounds, {arguments.runs} runs"
            tables += [
                metric_table(f"Regret: {where}", results, "regret"),
                lead_table(f"Regret that knowing saves, below zero where it costs: {where}",
                           results),
            ]  # fmt: skip
        return Report(
            experiment=self.name,
            settings={
                "runs": arguments.runs,
                "horizon": horizon,
                "long_horizon": longer.horizon,
                "seed": arguments.seed,
                "policies": chosen,
                "switch_probabilities": [*PROBABILITIES, LONG_PROBABILITY],
            },
            seconds=time.perf_counter() - started,
            policies=rows(short | long),
            claims=[*check_all(CLAIMS, short), *check_all(LONG_CLAIMS, long)],
            tables=[table for table in tables if table.rows],
        ).drawn_by(draw)
