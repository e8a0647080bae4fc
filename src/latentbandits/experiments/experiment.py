"""The protocol of an experiment: one folder of `experiments/`."""

from __future__ import annotations

import argparse
from concurrent.futures import Executor
from typing import Protocol

from latentbandits.report.progress import Progress
from latentbandits.report.report import Report


class Experiment(Protocol):
    """An experiment that `latentbandits reproduce NAME` runs."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def help(self) -> str:
        """The line that `reproduce --help` shows."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this experiment to its parser."""

    def check(self, arguments: argparse.Namespace) -> None:
        """Raise ValueError for options that cannot be run, before any work."""

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        """Run the experiment and return its report; `executor` runs parts in other processes."""
