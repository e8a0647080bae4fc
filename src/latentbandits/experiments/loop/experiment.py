"""Relearn several times next to a real service, and test the gate with broken candidates."""

from __future__ import annotations

import argparse
from concurrent.futures import Executor

from latentbandits.experiments.movielens.data import given_folder
from latentbandits.options import positive
from latentbandits.report.progress import Progress
from latentbandits.report.report import Report

PHASES, TRIES, HTTP_TRIES = 4, 200, 5
USERS = ("simulated", "movielens")


class LoopExperiment:
    """A service that starts with little data and learns from its own log."""

    name = "loop"
    help = "the closed loop on a real service: regret falls, broken candidates stay out"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--users", nargs="+", choices=USERS, default=["simulated"],
            help="who visits the service (default simulated)")  # fmt: skip
        add("--data", metavar="DIR", help="a MovieLens 1M folder, as for `reproduce movielens`")
        add("--phases", type=positive, default=PHASES, help=f"relearnings (default {PHASES})")
        add("--sessions", type=positive, help="of a phase (default 2000, MovieLens 700)")
        add("--tries", type=positive, default=TRIES, help=f"broken candidates (default {TRIES})")
        add("--http-tries", type=positive, default=HTTP_TRIES,
            help=f"broken candidates over HTTP (default {HTTP_TRIES})")  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        """Look for the data, if they are needed, before the work begins."""
        if "movielens" in arguments.users:
            given_folder(arguments.data)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.experiments.loop.measure import measure  # needs the serving extra

        return measure(self.name, arguments, progress)
