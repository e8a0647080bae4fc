"""What a benchmark found: tables, targets and remarks, for the terminal and for results.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Target:
    """A measured value and the bound that it should keep; None where it could not be measured."""

    what: str
    measured: float | None
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    @property
    def bound(self) -> str:
        if self.at_least is not None:
            return f"at least {self.at_least:g} {self.unit}".rstrip()
        if self.at_most is not None:
            return f"at most {self.at_most:g} {self.unit}".rstrip()
        return "-"

    @property
    def met(self) -> bool | None:
        """None: not measured, or there is no bound to keep."""
        if self.measured is None or (self.at_least is None and self.at_most is None):
            return None
        return (self.at_least is None or self.measured >= self.at_least) and (
            self.at_most is None or self.measured <= self.at_most
        )


@dataclass(frozen=True)
class Report:
    """What a benchmark's `main()` returns."""

    title: str
    tables: tuple[Table, ...] = ()
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        content = asdict(self)
        content["targets"] = [
            asdict(target) | {"bound": target.bound, "met": target.met} for target in self.targets
        ]
        return content

    def markdown(self) -> str:
        """The same tables for a page of documentation."""
        tables = [*self.tables, *([_target_table(self.targets)] if self.targets else [])]
        parts = [f"## {self.title}", *map(_markdown, tables), *(f"**{n}**" for n in self.notes)]
        return "\n\n".join(parts) + "\n"

    def show(self, console: Console) -> None:
        console.rule(self.title)
        for table in self.tables:
            console.print(_rich(table))
        if self.targets:
            console.print(_rich(_target_table(self.targets)))
        for note in self.notes:
            console.print(f"[bold red]{note}[/]")


def _target_table(targets: tuple[Target, ...]) -> Table:
    words = {True: "yes", False: "NO", None: "-"}
    rows = []
    for target in targets:
        measured = "not measured" if target.measured is None else target.measured
        met = "NOT MEASURED" if target.measured is None else words[target.met]
        rows.append((target.what, measured, target.bound, met))
    return Table("ratios and targets", ("what", "measured", "target", "met"), tuple(rows))


def _rich(table: Table) -> RichTable:
    rich = RichTable(title=table.title, title_justify="left")
    for i, column in enumerate(table.columns):
        rich.add_column(column, justify="left" if i == 0 else "right")
    for row in table.rows:
        rich.add_row(*map(_text, row))
    return rich


def _markdown(table: Table) -> str:
    rows = [
        (table.title, *table.columns[1:]),
        ("---", *["---:"] * (len(table.columns) - 1)),
        *(tuple(map(_text, row)) for row in table.rows),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}" if abs(cell) >= 100 else f"{cell:.3g}"
    return "-" if cell is None else str(cell)
