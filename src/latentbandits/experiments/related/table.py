"""A table of the experiment as data: columns of problems, rows of policies, reference values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from latentbandits.environments.protocol import Environment
from latentbandits.policies.protocol import AnyPolicy


class Reference(NamedTuple):
    """A result of an independent implementation: mean, standard error, and number of runs."""

    mean: float
    stderr: float
    runs: int


@dataclass(frozen=True, eq=False)
class Row:
    """A policy and its problem; all rows of a column have the same users and noise."""

    environment: Environment
    policy: Callable[[Any], AnyPolicy]  # makes the policy from the environment's model
    reference: Reference | None = None
    runs: int | None = None  # fewer than the column's, if the row is slow


@dataclass(frozen=True, eq=False)
class Column:
    """One problem, with its rows, number of runs and horizon."""

    name: str
    rows: Mapping[str, Row]
    runs: int
    horizon: int

    def runs_of(self, name: str) -> int:
        """Return the number of runs of a row."""
        return min(self.runs, self.rows[name].runs or self.runs)

    def only(self, names: Collection[str]) -> Column:
        """Return this problem with only the rows in `names`."""
        rows = {name: row for name, row in self.rows.items() if name in names}
        return Column(self.name, rows, self.runs, self.horizon)


@dataclass(frozen=True, eq=False)
class RelatedTable:
    """One of the five tables. `columns(quick)` builds its problems; quick ones take seconds."""

    name: str
    title: str
    columns: Callable[[bool], list[Column]]
    quarters: bool = False  # show the regret up to each quarter of the rounds
