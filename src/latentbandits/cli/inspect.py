"""`latentbandits inspect MODEL`: show a model, and the report of its fit."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits inspect`."""
    parser.add_argument("model", metavar="MODEL", help="a folder that fit or save wrote")


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits inspect`; returns the exit code."""
    from latentbandits.cli.console import print_warnings
    from latentbandits.cli.model_tables import field_table, model_table
    from latentbandits.learning.assess.tables import tables
    from latentbandits.learning.save import load_report
    from latentbandits.models import GaussianArms, LinearGaussian, load, load_catalogue
    from latentbandits.models.artefacts.files import load_notes
    from latentbandits.report.terminal import show_tables

    model, catalogue = load(arguments.model), load_catalogue(arguments.model)
    report = load_report(arguments.model)
    shown = [] if report is None else tables(report)
    about = (
        model_table(model, catalogue)
        if isinstance(model, (GaussianArms, LinearGaussian))
        else field_table(model)
    )
    console = show_tables([about, *shown])
    notes = load_notes(arguments.model)
    if "sentence" in notes:
        console.print(notes["sentence"], highlight=False, markup=False)
        console.print(f"recommended policy: {notes['recommended_policy']}", highlight=False)
    print_warnings([] if report is None else report.get("warnings", []))
    return 0
