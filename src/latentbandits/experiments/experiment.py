"""The protocol of an experiment: one folder of `experiments/`."""

from __future__ import annotations

import argparse
from concurrent.futures import Executor
from typing import Protocol

from latentbandits.report.progress import ProgressBar
from latentbandits.report.report import Report


class Experiment(Protocol):
    """One folder of `experiments/`: a module with these names."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str: ...

    def add_options(self, parser: argparse.ArgumentParser) -> None: ...

    def check(self, arguments: argparse.Namespace) -> None:
        """ValueError for options that cannot be run, before any work."""

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: ProgressBar
    ) -> Report: ...
