"""`latentbandits inspect MODEL`: show a model, and the report of its fit."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from latentbandits.options import add_json

if TYPE_CHECKING:
    from latentbandits.models import Catalogue, Model
    from latentbandits.report.report import Table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits inspect`."""
    parser.add_argument("model", metavar="MODEL", help="a folder that fit or save wrote")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits inspect`; returns the exit code."""
    from latentbandits.cli.console import print_warnings, show_fit
    from latentbandits.learning.save import load_report
    from latentbandits.models import load, load_catalogue
    from latentbandits.models.artefacts import load_notes
    from latentbandits.report.terminal import open_console, print_json, show_tables

    model, catalogue = load(arguments.model), load_catalogue(arguments.model)
    report = load_report(arguments.model)
    console = open_console(stderr=arguments.json)
    if report is not None:
        show_fit(console, report, [field_table(model, catalogue)], verbose=True)
        print_warnings(report.get("warnings", []))
    else:
        show_tables([field_table(model, catalogue)], console)
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


def field_table(model: Model, catalogue: Catalogue | None) -> Table:
    """Return a table of the fields of any model, and of the models inside it."""
    from latentbandits.models.artefacts import to_arrays
    from latentbandits.report.report import Table

    rows: list[tuple[str, ...]] = []
    for name, array in to_arrays(model).items():
        spread = f"{array.min():.4g} to {array.max():.4g}" if array.ndim else f"{array.item():g}"
        if name == "state_prior" and array.ndim == 1:
            spread = ", ".join(f"{share:.3f}" for share in array)
        rows.append((name, "x".join(map(str, array.shape)) or "-", spread))
    if catalogue is not None:
        rows.append(("catalogue", str(len(catalogue)), "ids and names of the actions"))
    noun = "state" if model.n_states == 1 else "states"
    title = f"{type(model).__name__}, {model.n_states} {noun}"
    return Table(title, ("field", "shape", "values"), rows)
