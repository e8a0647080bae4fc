"""Relearn several times beside a real service, and try to get broken candidates past the gate."""

from __future__ import annotations

import argparse
from concurrent.futures import Executor

from latentbandits.options import positive
from latentbandits.report.progress import ProgressBar
from latentbandits.report.report import Report

PHASES, SESSIONS, TRIES, HTTP_TRIES = 4, 2000, 200, 5


class LoopExperiment:
    """A service that starts with little data learns from its own log, and only from what helps."""

    name = "loop"
    help = "the closed loop on a real service: regret falls, broken candidates stay out"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--phases", type=positive, default=PHASES, help=f"relearnings (default {PHASES})")
        add("--sessions", type=positive, default=SESSIONS, help=f"of a phase (default {SESSIONS})")
        add("--tries", type=positive, default=TRIES, help=f"broken candidates (default {TRIES})")
        add("--http-tries", type=positive, default=HTTP_TRIES, help=f"(default {HTTP_TRIES})")

    def check(self, arguments: argparse.Namespace) -> None:
        """Every combination of these options can be run."""

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: ProgressBar
    ) -> Report:
        from latentbandits.experiments.loop.measure import measure  # needs the serving extra

        return measure(self.name, arguments, progress)
