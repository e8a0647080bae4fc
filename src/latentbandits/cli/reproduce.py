"""`latentbandits reproduce EXPERIMENT`: the paper's figures and claims, measured again."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial
from typing import Any

from latentbandits.experiments import MOVED, Experiment, installed
from latentbandits.options import add_common


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the experiments of `latentbandits reproduce`."""
    experiments = add_experiments(parser, installed())
    for name in MOVED:
        moved = experiments.add_parser(name, add_help=False)
        moved.set_defaults(moved=name)  # whatever options follow


def add_experiments(parser: argparse.ArgumentParser, experiments: Iterable[Experiment]) -> Any:
    """Add one sub-command for each experiment; return the sub-parsers."""
    subparsers = parser.add_subparsers(required=True, metavar="EXPERIMENT")
    for experiment in experiments:
        words = experiment.help
        sub = subparsers.add_parser(experiment.name, help=words, description=words)
        experiment.add_options(sub)
        add_common(sub, out=f"out/{experiment.name}")
        sub.set_defaults(run=partial(_run, experiment))
    return subparsers


def run(arguments: argparse.Namespace) -> int:
    """Say where an experiment went that is not installed; installed ones have their own `run`."""
    name = arguments.moved
    raise ValueError(
        f"the experiment {name!r} is not part of the installed package: in a clone of the "
        f"repository run `python -m evidence {name}`"
    )


def _run(experiment: Experiment, arguments: argparse.Namespace) -> int:
    from latentbandits.cli.console import OutputFolder, Progress, print_warnings
    from latentbandits.cli.console import executor as processes

    experiment.check(arguments)
    folder = OutputFolder(arguments.out)  # fails here, before the work, if it is unusable
    with processes(arguments.jobs) as executor, Progress(experiment.name) as progress:
        report = experiment.run(arguments, executor, progress)
    print_warnings(report.warnings)
    folder.keep(report)
    return 0
