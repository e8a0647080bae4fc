"""`latentbandits reproduce EXPERIMENT`: the paper's figures and claims, measured again."""

from __future__ import annotations

import argparse
from typing import Any

from latentbandits.experiments import EXPERIMENTS, Experiment
from latentbandits.options import add_common


def add_parser(subparsers: Any) -> None:
    """Add `latentbandits reproduce` and its options."""
    parser = subparsers.add_parser("reproduce", help=__doc__.split(": ", 1)[1], description=__doc__)
    experiments = parser.add_subparsers(required=True, metavar="EXPERIMENT")
    for experiment in EXPERIMENTS:
        _add_experiment(experiments, experiment)


def _add_experiment(experiments: Any, experiment: Experiment) -> None:
    sub = experiments.add_parser(experiment.name, help=experiment.help, description=experiment.help)
    experiment.add_options(sub)
    add_common(sub, out=f"out/{experiment.name}")
    sub.set_defaults(run=lambda arguments: _run(experiment, arguments))


def _run(experiment: Experiment, arguments: argparse.Namespace) -> int:
    from latentbandits.cli.console import OutputFolder, Progress
    from latentbandits.cli.console import executor as processes
    from latentbandits.report.files import write
    from latentbandits.report.terminal import show

    experiment.check(arguments)
    folder = OutputFolder(arguments.out)  # fails here, before the work, if it is unusable
    with processes(arguments.jobs) as executor, Progress(experiment.name) as progress:
        report = experiment.run(arguments, executor, progress)
    with folder.replacing() as scratch:
        write(report, scratch)
    show(report, folder.path)
    return 0
