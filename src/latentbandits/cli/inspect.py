"""`latentbandits inspect MODEL`: show a model, and the report of its fit."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `latentbandits inspect` and its options."""
    parser = subparsers.add_parser("inspect", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a folder that fit or save wrote")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits inspect`; returns the exit code."""
    from latentbandits.cli.console import print_warnings
    from latentbandits.cli.model_tables import field_table, model_table, tables
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
