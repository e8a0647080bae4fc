"""`latentbandits inspect MODEL`: show a model, and the report of its fit."""

from __future__ import annotations

import argparse

from latentbandits.options import add_json


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits inspect`."""
    parser.add_argument("model", metavar="MODEL", help="a folder that fit or save wrote")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits inspect`; returns the exit code."""
    from latentbandits.cli.console import print_warnings, show_fit
    from latentbandits.cli.model_tables import field_table, model_table
    from latentbandits.learning.save import load_report
    from latentbandits.models import GaussianArms, LinearGaussian, load, load_catalogue
    from latentbandits.models.artefacts.files import load_notes
    from latentbandits.report.terminal import open_console, print_json, show_tables

    model, catalogue = load(arguments.model), load_catalogue(arguments.model)
    report = load_report(arguments.model)
    about = (
        model_table(model, catalogue)
        if isinstance(model, (GaussianArms, LinearGaussian))
        else field_table(model)
    )
    console = open_console(stderr=arguments.json)
    if report is not None:
        show_fit(console, report, [about], verbose=True)
        print_warnings(report.get("warnings", []))
    else:
        show_tables([about], console)
    if arguments.json:
        print_json(
            {
                "command": "inspect",
                "model": type(model).__name__,
                "n_states": model.n_states,
                "n_actions": model.n_actions if catalogue is None else len(catalogue),
                "notes": load_notes(arguments.model),
                "report": report,
            }
        )
    return 0
