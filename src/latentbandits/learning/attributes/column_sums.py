"""Sums over the rows of a column: its kind, its moments or counts, and its invalid values.

The sums of partitions add, so that any engine learns how a column is encoded in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from latentbandits.learning.logs.tables import LogError
from latentbandits.models.attributes.columns import Category, Column, Number, Vector, text_of

MOST_LEVELS = 50
"""Categories of a column that are kept, the most frequent ones; others count as unknown."""

FEWEST_ROWS = 5
"""Number of rows that a category needs to be kept."""

MOST_VALUES = 1_000_000
"""Distinct texts that a column may have: with more, it is an id, not a category."""


@dataclass(frozen=True)
class NumberSums:
    """The mean and the squared differences from it (Chan et al. 1983), and the range."""

    n: int
    mean: float
    squares: float
    least: float
    most: float
    n_infinite: int

    @classmethod
    def from_values(cls, values: pl.Series) -> NumberSums:
        numbers = values.cast(pl.Float64).to_numpy()
        numbers = numbers[~np.isnan(numbers)]
        finite = numbers[np.isfinite(numbers)]
        n_infinite = len(numbers) - len(finite)
        if not len(finite):
            return cls(0, 0.0, 0.0, inf, -inf, n_infinite)
        mean = float(finite.mean())
        squares = float(((finite - mean) ** 2).sum())
        return cls(len(finite), mean, squares, float(finite.min()), float(finite.max()), n_infinite)

    def __add__(self, other: NumberSums) -> NumberSums:
        n = self.n + other.n
        apart = other.mean - self.mean
        share = other.n / n if n else 0.0
        return NumberSums(
            n,
            self.mean + share * apart,
            self.squares + other.squares + share * self.n * apart**2,
            min(self.least, other.least),
            max(self.most, other.most),
            self.n_infinite + other.n_infinite,
        )

    def column(self, name: str) -> Number:
        """Return the encoding of the column; LogError if it carries no information."""
        if self.n_infinite:
            raise LogError(
                f"column {name} is infinite in {self.n_infinite:,} rows: mend or drop those rows"
            )
        if not self.n:
            raise _empty(name)
        if self.least == self.most:
            raise _constant(name, f"{self.least:g}")
        return Number(name, self.mean, float(np.sqrt(self.squares / self.n)))


@dataclass(frozen=True)
class CategorySums:
    """The number of rows of every text; empty if there are more than MOST_VALUES texts."""

    counts: dict[str, int]
    too_many: bool = False

    @classmethod
    def from_values(cls, values: pl.Series) -> CategorySums:
        counts: dict[str, int] = {}
        for value, count in values.drop_nulls().value_counts().iter_rows():
            text = text_of(value)
            counts[text] = counts.get(text, 0) + count
        return cls(counts)._limited()

    def __add__(self, other: CategorySums) -> CategorySums:
        counts = dict(self.counts)
        for text, count in other.counts.items():
            counts[text] = counts.get(text, 0) + count
        return CategorySums(counts, self.too_many or other.too_many)._limited()

    def _limited(self) -> CategorySums:
        if self.too_many or len(self.counts) > MOST_VALUES:
            return CategorySums({}, True)
        return self

    def column(self, name: str) -> Category:
        """Return the encoding of the column; LogError if it carries no information."""
        counts = self.counts
        if self.too_many:
            raise LogError(
                f"column {name} has more than {MOST_VALUES:,} different values: it is no category "
                "that can be learned from"
            )
        if not counts:
            raise _empty(name)
        if len(counts) < 2:
            raise _constant(name, repr(next(iter(counts))))
        frequent = sorted(counts, key=lambda level: (-counts[level], level))[:MOST_LEVELS]
        levels = sorted(level for level in frequent if counts[level] >= FEWEST_ROWS)
        if len(levels) < 2:
            raise LogError(
                f"column {name} has {len(counts):,} different values, of which fewer than two "
                f"occur {FEWEST_ROWS} times: it is no category that can be learned from"
            )
        total = sum(counts[level] for level in levels)
        return Category(name, tuple(levels), tuple(counts[level] / total for level in levels))


@dataclass(frozen=True)
class VectorSums:
    """The lengths of lists, and how many rows have no list of finite numbers."""

    lengths: frozenset[int]
    n_missing: int
    n_bad: int

    @classmethod
    def from_values(cls, values: pl.Series) -> VectorSums:
        lists = values.cast(pl.List(values.dtype.inner)) if _is_array(values.dtype) else values  # type: ignore[attr-defined]
        there = lists.drop_nulls()
        lengths = frozenset(int(n) for n in there.list.len().unique())
        flat = there.filter(there.list.len() > 0).explode()
        bad = len(flat)
        if flat.dtype.is_numeric():
            bad = int((flat.is_null() | ~flat.cast(pl.Float64).is_finite()).fill_null(True).sum())
        return cls(lengths, len(lists) - len(there), bad)

    def __add__(self, other: VectorSums) -> VectorSums:
        return VectorSums(
            self.lengths | other.lengths,
            self.n_missing + other.n_missing,
            self.n_bad + other.n_bad,
        )

    def column(self, name: str) -> Vector:
        """Return the encoding of the column; LogError if its rows are not alike."""
        if len(self.lengths) != 1 or self.n_missing:
            lengths = ", ".join(str(length) for length in sorted(self.lengths))
            raise LogError(
                f"column {name} holds lists of different lengths ({lengths}"
                f"{', some missing' if self.n_missing else ''}): a vector needs one length"
            )
        if self.lengths == {0}:
            raise _empty(name)
        if self.n_bad:
            raise LogError(
                f"column {name} holds lists with {self.n_bad:,} entries that are no finite "
                "numbers: a vector is a list of numbers"
            )
        return Vector(name, next(iter(self.lengths)))


ColumnSums: TypeAlias = NumberSums | CategorySums | VectorSums


def sum_column(values: pl.Series) -> ColumnSums:
    """Return the sums of a column: of numbers, of lists of numbers, or of anything else."""
    if isinstance(values.dtype, pl.List) or _is_array(values.dtype):
        return VectorSums.from_values(values)
    return (
        NumberSums.from_values(values)
        if values.dtype.is_numeric()
        else CategorySums.from_values(values)
    )


def learn_column(values: pl.Series, name: str) -> Column:
    """Return the encoding of a column; LogError if it carries no information.

    Numbers are standardised, lists of numbers are vectors, anything else is a category.

    >>> learn_column(pl.Series([1.0, 3.0]), "age")
    Number(name='age', mean=2.0, scale=1.0)
    """
    return sum_column(values).column(name)


def _is_array(kind: Any) -> bool:
    return isinstance(kind, pl.Array)


def _empty(name: str) -> LogError:
    return LogError(f"column {name} has no values: leave it out")


def _constant(name: str, value: str) -> LogError:
    return LogError(
        f"column {name} has the same value in all rows ({value}): it says nothing, leave it out"
    )
