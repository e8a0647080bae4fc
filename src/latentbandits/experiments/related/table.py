"""A table of the experiment as data: columns of problems, rows of policies, reference values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from latentbandits.environments.protocol import Environment
from latentbandits.policies.protocol import AnyPolicy


class Reference(NamedTuple):
    """A figure of an independent implementation: mean, standard error, and its runs."""

    mean: float
    stderr: float
    runs: int


@dataclass(frozen=True, eq=False)
class Row:
    """A policy and the problem it plays; rows of a column draw the same users and noise."""

    environment: Environment
    policy: Callable[[Any], AnyPolicy]  # of the model that the environment tells
    reference: Reference | None = None
    runs: int | None = None  # fewer than the column's, where a row is slow


@dataclass(frozen=True, eq=False)
class Column:
    """One problem: how many runs, for how long."""

    name: str
    rows: Mapping[str, Row]
    runs: int
    horizon: int

    def runs_of(self, name: str) -> int:
        """Return the number of runs of a row."""
        return min(self.runs, self.rows[name].runs or self.runs)

    def only(self, names: Collection[str]) -> Column:
        """Return this problem with some of its rows."""
        rows = {name: row for name, row in self.rows.items() if name in names}
        return Column(self.name, rows, self.runs, self.horizon)


@dataclass(frozen=True, eq=False)
class RelatedTable:
    """One of the five tables. `columns(quick)` builds its problems; quick ones take seconds."""

    name: str
    title: str
    columns: Callable[[bool], list[Column]]
    quarters: bool = False  # show the regret up to each quarter of the rounds
