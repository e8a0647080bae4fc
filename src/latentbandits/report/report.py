"""The contents of a report: claims, tables, figures and frames, as data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


# A mean with its standard error.

FloatArray = NDArray[np.float64]


class Estimate(NamedTuple):
    """A mean over runs and its standard error.

    >>> print(Estimate(28.414, 0.333), Estimate(1234.5, 21.0), sep=", ")
    28.41 ±0.33, 1234 ±21
    """

    mean: float
    stderr: float

    def __str__(self) -> str:
        return format(self)

    def __format__(self, sign: str) -> str:
        """Show two digits of the error and as many of the mean; "too few runs" if there is none.

        With `sign` "+" a positive mean has a plus.

        >>> f"{Estimate(0.05841, 0.0057):+}"
        '+0.0584 ±0.0057'
        """
        if math.isnan(self.mean):
            return "too few runs"
        if not (math.isfinite(self.stderr) and self.stderr > 0):
            return f"{self.mean:{sign}.4g}"
        digits = max(0, 1 - math.floor(math.log10(self.stderr)))
        return f"{self.mean:{sign}.{digits}f} ±{self.stderr:.{digits}f}"

    def row(self, name: str) -> dict[str, float]:
        """Return the two numbers as columns of a row of results.json."""
        return {name: self.mean, f"{name}_stderr": self.stderr}

    @classmethod
    def from_values(cls, values: FloatArray, n_groups: int = 1) -> Estimate:
        """Estimate the mean of `values`, which are `n_groups` consecutive groups of equal size.

        If groups vary more than their members explain, the standard error is larger.

        >>> print(Estimate.from_values(np.array([1.0, 2.0, 3.0, 4.0]), n_groups=2))
        2.5 ±1.0
        """
        groups = values.reshape(n_groups, -1)
        n = groups.shape[1]
        within = float(groups.var(axis=1, ddof=1).mean()) / values.size if n > 1 else math.nan
        if n_groups == 1:
            return cls(float(values.mean()), math.sqrt(within))
        between = float(groups.mean(axis=1).var(ddof=1)) / n_groups
        return cls(float(values.mean()), math.sqrt(max(between, within) if n > 1 else between))


def estimate_in(row: Mapping[str, Any], name: str) -> Estimate:
    """Return the estimate of this name in a row of results.json; NaN where it has null.

    >>> print(estimate_in({"regret": 2.0, "regret_stderr": 0.1}, "regret"))
    2.00 ±0.10
    """
    numbers = (row[key] for key in (name, f"{name}_stderr"))
    return Estimate(*(math.nan if number is None else number for number in numbers))


class Claim(NamedTuple):
    """A claim: its prediction, the measurement, and whether it holds.

    `holds` is None where the runs are too few to tell, or where nothing was tested.
    """

    id: str
    claim: str
    predicted: str
    measured: str
    holds: bool | None


@dataclass(frozen=True, eq=False)
class Table:
    """Rows for a terminal; with `one_line`, cells are cut where the terminal is too narrow."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    one_line: bool = False


@dataclass(frozen=True, eq=False)
class Report:
    """The results of a command: data for results.json, tables, figures and frames."""

    experiment: str | None = None  # None: the command is not an experiment
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    policies: list[dict[str, Any]] = field(default_factory=list)
    command: str = "reproduce"
    warnings: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    frames: Mapping[str, polars.DataFrame] = field(default_factory=dict)
    results: Mapping[str, Any] | None = None  # in results.json in place of policies and claims
    summary: str | None = None  # of the last line; None: how many claims hold, and the seconds


def policy_table(title: str, rows: Iterable[dict[str, Any]]) -> Table:
    """Return a table of regret, mean reward and worst-decile reward, with standard errors."""
    names = ("regret", "reward", "worst_decile_reward", "first_rounds_reward", "last_rounds_reward")
    rows = list(rows)
    first, last = (rows[0][f"{name}_rounds"] if rows else "" for name in ("first", "last"))
    columns = ("policy", "regret", "reward", "worst 10%", f"first {first}", f"last {last}")
    body = [
        (
            str(row["policy"]),
            *(_error(row[name], row[f"{name}_stderr"], name) for name in names),
        )
        for row in rows
    ]
    return Table(title, columns, body)


def _error(mean: float, stderr: float, name: str) -> str:
    if math.isnan(mean):
        return "too few runs"
    digits = 1 if name == "regret" else 3
    return f"{mean:.{digits}f} ±{stderr:.{digits}f}" if math.isfinite(stderr) else f"{mean:.3f}"


def all_positive(differences: Iterable[Estimate]) -> bool | None:
    """Return whether all differences are above zero by more than two standard errors.

    False if one is below zero by as much, else None: too few runs to tell.

    >>> all_positive([Estimate(1.0, 0.3)]), all_positive([Estimate(1.0, 0.6)])
    (True, None)
    """
    scores = [(difference.mean, 2 * difference.stderr) for difference in differences]
    if all(mean > margin for mean, margin in scores):
        return True
    return False if any(mean < -margin for mean, margin in scores) else None


# The progress protocol of long computations.


class Progress(Protocol):
    """Counts the steps of one task after the other."""

    def start(self, description: str, total: int) -> None:
        """Begin a task of `total` steps."""

    def advance(self, steps: int) -> None:
        """Note that `steps` more are done."""


class Silent:
    """Progress that shows nothing."""

    def start(self, description: str, total: int) -> None: ...

    def advance(self, steps: int) -> None: ...
