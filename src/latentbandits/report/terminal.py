"""A report on disk (results.json, figures, frames) and on the terminal (tables)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from latentbandits.report.files import to_json
from latentbandits.report.report import Claim, Report, Table

_VERDICTS = {True: "yes", False: "NO", None: "undecided"}


def show(report: Report, folder: Path | None = None, *, stderr: bool = False) -> None:
    """Show the tables of a report, its claims last, on standard output or standard error."""
    tables = [*report.tables]
    if report.claims:
        tables.append(claims_table(report.claims))
    console = open_console(stderr=stderr)
    show_tables(tables, console)
    held = sum(claim.holds is True for claim in report.claims)
    undecided = sum(claim.holds is None for claim in report.claims)
    parts = [report.summary or f"{report.seconds:.0f} s"]
    if report.claims:
        rest = f", {undecided} undecided" if undecided else ""
        parts.insert(0, f"{held} of {len(report.claims)} claims hold{rest}")
    if folder is not None:
        parts.append(f"results in {folder}")
    console.print("; ".join(parts))


def open_console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error.

    It is as wide as the terminal, also where a pager or `head` reads the output; else 130.
    """
    console = Console(stderr=stderr)
    watched = console.is_terminal or os.isatty(2)
    return console if watched else Console(stderr=stderr, width=130)


def show_tables(tables: Iterable[Table], console: Console) -> None:
    """Print tables with their titles."""
    for table in tables:
        # On a separate line, because a table's title is wrapped to the table's width.
        say(console, table.title, style="italic")
        console.print(_rich(table))


def say(console: Console, sentence: str, style: str | None = None) -> None:
    """Print a sentence as it is written: brackets in names are no markup."""
    console.print(sentence, style=style, highlight=False, markup=False)


def print_json(results: Mapping[str, Any]) -> None:
    """Print results as one JSON document on standard output."""
    sys.stdout.write(f"{to_json(results)}\n")


def claims_table(claims: Iterable[Claim]) -> Table:
    """Return a table of the claims, what they predict and what was measured."""
    body: list[tuple[str, ...]] = [
        (c.id, c.claim, c.predicted, c.measured, _VERDICTS[c.holds]) for c in claims
    ]
    return Table("Claims", ("id", "claim", "predicts", "measured", "holds"), body)


def _rich(table: Table) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, show_header=any(table.columns))
    for i, column in enumerate(table.columns):
        rich.add_column(column, justify="left", no_wrap=i == 0)
    for row in table.rows:
        overflow: Literal["ellipsis", "fold"] = "ellipsis" if table.one_line else "fold"
        cells = [Text(cell, no_wrap=table.one_line, overflow=overflow) for cell in row]
        rich.add_row(*cells, style="bold red" if row[-1] == "NO" else None)
    return rich
