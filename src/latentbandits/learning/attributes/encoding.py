"""Encode columns of a log as numbers: sum and check the columns, learn encodings, encode rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from latentbandits.learning.backends.backend import LogEngine
from latentbandits.learning.fit_options import columns_of, columns_of_term
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.attributes.columns import (
    Category,
    Column,
    Encoder,
    Number,
    Product,
    Row,
    Vector,
    text_of,
)
from latentbandits.models.checks import BoolArray, FloatArray

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

    counts: Counter[str]
    too_many: bool = False

    @classmethod
    def from_values(cls, values: pl.Series) -> CategorySums:
        counts: Counter[str] = Counter()
        for value, count in values.drop_nulls().value_counts().iter_rows():
            counts[text_of(value)] += count
        return cls(counts)._limited()

    def __add__(self, other: CategorySums) -> CategorySums:
        too_many = self.too_many or other.too_many
        return CategorySums(self.counts + other.counts, too_many)._limited()

    def _limited(self) -> CategorySums:
        if self.too_many or len(self.counts) > MOST_VALUES:
            return CategorySums(Counter(), True)
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
        lists = values.cast(pl.List(values.dtype.inner))  # type: ignore[attr-defined]
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
    if isinstance(values.dtype, (pl.List, pl.Array)):
        return VectorSums.from_values(values)
    if values.dtype.is_numeric():
        return NumberSums.from_values(values)
    return CategorySums.from_values(values)


def learn_column(values: pl.Series, name: str) -> Column:
    """Return the encoding of a column; LogError if it carries no information.

    Numbers are standardised, lists of numbers are vectors, anything else is a category.

    >>> learn_column(pl.Series([1.0, 3.0]), "age")
    Number(name='age', mean=2.0, scale=1.0)
    """
    return sum_column(values).column(name)


def _empty(name: str) -> LogError:
    return LogError(f"column {name} has no values: leave it out")


def _constant(name: str, value: str) -> LogError:
    return LogError(
        f"column {name} has the same value in all rows ({value}): it says nothing, leave it out"
    )


# Encode columns of a log as numbers: check the columns, learn each encoding, encode partitions.

SAMPLE = 500
"""Users whose attributes are kept with a gate."""


class UserAttributes(NamedTuple):
    """The encoding of the users' attributes, with a sample and counts of problems."""

    encoder: Encoder
    sample: tuple[Row, ...]  # unencoded attributes of some users
    n_changed: int  # users whose rows have different values of an attribute
    n_missing: int  # users without any known attribute


class UserRows(NamedTuple):
    """The attributes of the users of a partition."""

    frame: pl.DataFrame  # one row for each user: the first value by time that is not missing
    changed: BoolArray  # (n_users,): the user's rows have different values
    missing: BoolArray  # (n_users,): no attribute is known


def first_values(log: Log, columns: Sequence[str]) -> UserRows:
    """Return the first known value of each column for every user."""
    assert log.beside is not None
    values = log.beside.select(columns).with_columns(pl.selectors.float().fill_nan(None))
    known = [pl.col(name).drop_nulls() for name in columns]
    by_user = values.group_by(pl.Series(log.users), maintain_order=True)  # users are ascending
    different = by_user.agg(one.n_unique() for one in known).select(columns)
    return UserRows(
        by_user.agg(one.first() for one in known).select(columns),
        different.select(pl.any_horizontal(pl.all() > 1)).to_series().to_numpy(),
        different.select(pl.all_horizontal(pl.all() == 0)).to_series().to_numpy(),
    )


class SideSums(NamedTuple):
    """The sums of all columns; sums of partitions add."""

    rows: dict[str, ColumnSums]
    users: dict[str, ColumnSums]
    n_changed: int
    n_missing: int


@dataclass(frozen=True)
class SumColumns:
    """A pass that sums some columns over rows and others over users."""

    rows: tuple[str, ...]
    users: tuple[str, ...]

    def summarise(self, log: Log, parameters: None) -> SideSums:
        assert log.beside is not None
        rows = {name: sum_column(log.beside[name]) for name in self.rows}
        if not self.users:
            return SideSums(rows, {}, 0, 0)
        known = first_values(log, self.users)
        users = {name: sum_column(known.frame[name]) for name in self.users}
        return SideSums(rows, users, int(known.changed.sum()), int(known.missing.sum()))


def learn_attributes(log: LogEngine, column_sums: SideSums) -> UserAttributes:
    """Return the encoding of users' attributes, with the attributes of a sample of users."""
    for name, sums in column_sums.users.items():
        if isinstance(sums, VectorSums):
            raise LogError(f"--user-features {name}: a user's attribute is a number or a text")
    encoder = Encoder(tuple(sums.column(name) for name, sums in column_sums.users.items()))
    some = first_values(log.sample(SAMPLE, 0), encoder.names).frame
    return UserAttributes(
        encoder, tuple(some.to_dicts()), column_sums.n_changed, column_sums.n_missing
    )


def learn_features(sums: SideSums, terms: Sequence[str]) -> Encoder:
    """Return the encoder of row features; `a*b` is an interaction, with `a` and `b` themselves.

    If all columns are vectors, they are used unchanged. Otherwise an intercept is added.
    """
    columns: dict[str, Column] = {}
    products: dict[str, Product] = {}
    for term in terms:
        parts = columns_of_term(term)
        for part in parts:
            if part not in columns:
                columns[part] = sums.rows[part].column(part)
        if len(parts) == 2:
            first, second = (columns[part] for part in parts)
            if isinstance(first, (Vector, Product)) or isinstance(second, (Vector, Product)):
                raise LogError(f"--features {term}: a column of lists has no interactions")
            products[f"{parts[0]}*{parts[1]}"] = Product(first, second)
    encoded = (*columns.values(), *products.values())
    return Encoder(encoded, intercept=not all(isinstance(column, Vector) for column in encoded))


@dataclass(frozen=True, eq=False)
class Encoded:
    """A transform of a partition that encodes its columns as features and attributes."""

    rows: Encoder | None
    users: Encoder | None

    def __call__(self, log: Log) -> Log:
        assert log.beside is not None
        return replace(
            log,
            features=None if self.rows is None else encode(self.rows, log.beside),
            attributes=None
            if self.users is None
            else encode(self.users, first_values(log, self.users.names).frame),
            beside=None,
        )


def encode(encoder: Encoder, table: pl.DataFrame) -> FloatArray:
    """Return the encoded rows of a table, `(n_rows, len(encoder))`.

    The result equals `encoder.encode(table.to_dicts())`, but is computed column by column.
    """
    parts = [np.ones((len(table), int(encoder.intercept)))]
    parts += [_encode(column, table) for column in encoder.columns]
    return np.concatenate(parts, axis=1)


def _encode(column: Column, table: pl.DataFrame) -> FloatArray:
    if isinstance(column, Product):
        one, other = _encode(column.first, table), _encode(column.second, table)
        return (one[:, :, None] * other[:, None, :]).reshape(len(table), -1)
    values = table[column.name]
    if isinstance(column, Number):
        return column.standardise(values.cast(pl.Float64).to_numpy())[0]
    if isinstance(column, Vector):
        inner = values.dtype.inner  # type: ignore[attr-defined]
        numbers = values.cast(pl.List(inner)).explode().cast(pl.Float64)
        return numbers.to_numpy().reshape(len(table), column.length)
    distinct = values.unique(maintain_order=True)
    place = values.replace_strict(distinct, np.arange(len(distinct)), return_dtype=pl.Int64)
    levels = column.encode([{column.name: value} for value in distinct])[0]
    encoded: FloatArray = levels[place.to_numpy()]
    return encoded


# The log of a fit, encoded.


@dataclass(frozen=True, eq=False)
class EncodedLog:
    """A log that holds attributes of users and features of rows as numbers."""

    log: LogEngine
    users: UserAttributes | None = None
    rows: Encoder | None = None


def encode_log(
    log: LogEngine, user_features: Sequence[str], features: Sequence[str], action: str | None
) -> EncodedLog:
    """Return the log with its users' attributes and its rows' features, encoded.

    `action` is the column of actions; if it is a feature, a request's action ids fill it in.
    """
    sums = log.fold(SumColumns(tuple(columns_of(features)), tuple(user_features)), None)
    users = learn_attributes(log, sums) if user_features else None
    rows = None
    if features:
        rows = learn_features(sums, features)
        name = action or "action"
        rows = replace(rows, action=name if name in rows.names else None)
    change = Encoded(rows, None if users is None else users.encoder)
    return EncodedLog(log.mapped(change), users, rows)
