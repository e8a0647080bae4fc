"""Encode columns of a log as numbers: check the columns, learn each encoding, encode partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from latentbandits.learning.attributes.column_sums import ColumnSums, VectorSums, sum_column
from latentbandits.learning.backends.backend import Engine
from latentbandits.learning.fit_options import columns_of, columns_of_term
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import (
    LogError,
)
from latentbandits.models.attributes.columns import Column, Encoder, Number, Product, Row, Vector
from latentbandits.models.checks import BoolArray, FloatArray

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
    changed = np.zeros(log.n_users, np.bool_)
    missing = np.ones(log.n_users, np.bool_)
    taken: dict[str, pl.Series] = {}
    for name in columns:
        values = log.beside[name]
        values = values.fill_nan(None) if values.dtype.is_float() else values
        grouped = (
            pl.DataFrame({"user": log.users, "value": values})
            .group_by("user", maintain_order=True)
            .agg(
                pl.col("value").drop_nulls().first().alias("first"),
                pl.col("value").drop_nulls().n_unique().alias("different"),
            )
            .sort("user")
        )
        taken[name] = grouped["first"]
        changed |= grouped["different"].to_numpy() > 1
        missing &= grouped["first"].is_null().to_numpy()
    return UserRows(pl.DataFrame(taken), changed, missing)


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
        known = first_values(log, self.users)
        return SideSums(
            {name: sum_column(log.beside[name]) for name in self.rows},
            {name: sum_column(known.frame[name]) for name in self.users},
            int(known.changed.sum()),
            int(known.missing.sum()) if self.users else 0,
        )


def learn_attributes(log: Engine, column_sums: SideSums) -> UserAttributes:
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
    place = values.to_frame("value").join(
        distinct.to_frame("value").with_row_index("place"),
        on="value",
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    levels = column.encode([{column.name: value} for value in distinct])[0]
    encoded: FloatArray = levels[place["place"].to_numpy()]
    return encoded


# The log of a fit, encoded.


@dataclass(frozen=True, eq=False)
class EncodedLog:
    """A log that holds attributes of users and features of rows as numbers."""

    log: Engine
    users: UserAttributes | None = None
    rows: Encoder | None = None


def encode_log(
    log: Engine, user_features: Sequence[str], features: Sequence[str], action: str | None
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
