"""A report on disk (results.json, figures, frames) and on the terminal (tables)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from latentbandits.report.report import Claim, Report, Table

_VERDICTS = {True: "yes", False: "NO", None: "undecided"}


def show(report: Report, folder: Path | None = None) -> None:
    """Show the tables of a report, its claims last."""
    tables = [*report.tables]
    if report.claims:
        tables.append(claims_table(report.claims))
    console = show_tables(tables)
    held = sum(claim.holds is True for claim in report.claims)
    undecided = sum(claim.holds is None for claim in report.claims)
    parts = [report.summary or f"{report.seconds:.0f} s"]
    if report.claims:
        rest = f", {undecided} undecided" if undecided else ""
        parts.insert(0, f"{held} of {len(report.claims)} claims hold{rest}")
    if folder is not None:
        parts.append(f"results in {folder}")
    console.print("; ".join(parts))


def show_tables(tables: Iterable[Table]) -> Console:
    """Print tables on the terminal; with a fixed width if the output is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=130)
    for table in tables:
        # On a separate line, because a table's title is wrapped to the table's width.
        console.print(table.title, style="italic", highlight=False, markup=False)
        console.print(_rich(table))
    return console


def claims_table(claims: Iterable[Claim]) -> Table:
    """Return a table of the claims, what they predict and what was measured."""
    body: list[tuple[str, ...]] = [
        (c.id, c.claim, c.predicted, c.measured, _VERDICTS[c.holds]) for c in claims
    ]
    return Table("Claims", ("id", "claim", "predicts", "measured", "holds"), body)


def _rich(table: Table) -> RichTable:
    rich = RichTable(
        box=box.SIMPLE_HEAD,
        show_header=any(table.columns),
    )
    for i, column in enumerate(table.columns):
        rich.add_column(column, justify="left", no_wrap=i == 0)
    for row in table.rows:
        rich.add_row(*row, style="bold red" if row[-1] == "NO" else None)
    return rich
