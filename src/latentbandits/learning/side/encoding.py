"""From columns of a log to encoded numbers: which kind each column is, and its average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from latentbandits.learning.formats import LogError
from latentbandits.learning.logs import Log
from latentbandits.models.attributes.columns import (
    Category,
    Column,
    Number,
    Product,
    Row,
    Vector,
    text_of,
)
from latentbandits.models.attributes.encoder import Encoder
from latentbandits.models.checks import FloatArray

MOST_LEVELS = 50
"""Categories of a column that are kept, the most frequent ones; others count as unknown."""

FEWEST_ROWS = 5
"""Rows that a category needs to be kept."""

SAMPLE = 500
"""Users whose attributes are kept with a gate."""


class UserAttributes(NamedTuple):
    """The users' attributes, encoded, and what the log said about them."""

    encoder: Encoder
    encoded: FloatArray  # (n_users, len(encoder))
    sample: tuple[Row, ...]  # of some users, as they were
    n_changed: int  # users whose rows do not agree
    n_missing: int  # users of whom nothing is known


def user_attributes(log: Log, table: pl.DataFrame, columns: Sequence[str]) -> UserAttributes:
    """Encode attributes that the rows of each user state, `table` having one row for each event.

    The first value by time that is not missing is taken; users whose rows state several values are
    counted.
    """
    changed = np.zeros(log.n_users, np.bool_)
    missing = np.ones(log.n_users, np.bool_)
    taken: dict[str, pl.Series] = {}
    for name in columns:
        if isinstance(table[name].dtype, (pl.List, pl.Array)):
            raise LogError(f"--user-features {name}: a user's attribute is a number or a text")
        grouped = (
            pl.DataFrame({"user": log.users, "value": table[name].fill_nan(None)})
            if table[name].dtype.is_float()
            else pl.DataFrame({"user": log.users, "value": table[name]})
        )
        grouped = grouped.group_by("user", maintain_order=True).agg(
            pl.col("value").drop_nulls().first().alias("first"),
            pl.col("value").drop_nulls().n_unique().alias("different"),
        )
        grouped = grouped.sort("user")
        taken[name] = grouped["first"]
        changed |= grouped["different"].to_numpy() > 1
        missing &= grouped["first"].is_null().to_numpy()
    users = pl.DataFrame(taken)
    encoder = Encoder(tuple(learn_column(users[name], name) for name in columns))
    rows = np.random.default_rng(0).permutation(log.n_users)[:SAMPLE]
    sample = tuple(users[np.sort(rows)].to_dicts())
    return UserAttributes(
        encoder, encode(encoder, users), sample, int(changed.sum()), int(missing.sum())
    )


def learn_column(values: pl.Series, name: str) -> Column:
    """Return how a column is encoded; LogError if it says nothing.

    Numbers are standardised, lists of numbers are vectors, anything else is a category.

    >>> learn_column(pl.Series([1.0, 3.0]), "age")
    Number(name='age', mean=2.0, scale=1.0)
    """
    known = values.drop_nulls()
    if isinstance(values.dtype, (pl.List, pl.Array)):
        return _learn_vector(values, name)
    if known.is_empty():
        raise LogError(f"column {name} has no values: leave it out")
    if values.dtype.is_numeric():
        numbers = known.cast(pl.Float64)
        numbers = numbers.filter(numbers.is_finite())
        scale = float(np.std(numbers.to_numpy())) if len(numbers) else 0.0
        if not scale > 0:
            raise _constant(name, known[0])
        return Number(name, float(np.mean(numbers.to_numpy())), scale)
    counts: dict[str, int] = {}
    for value, count in known.value_counts(sort=True).iter_rows():
        text = text_of(value)
        counts[text] = counts.get(text, 0) + count
    if len(counts) < 2:
        raise _constant(name, known[0])
    frequent = sorted(counts, key=lambda level: (-counts[level], level))[:MOST_LEVELS]
    levels = sorted(level for level in frequent if counts[level] >= FEWEST_ROWS)
    if len(levels) < 2:
        raise LogError(
            f"column {name} has {len(counts):,} different values, of which fewer than two occur "
            f"{FEWEST_ROWS} times: it is no category that can be learned from"
        )
    total = sum(counts[level] for level in levels)
    return Category(name, tuple(levels), tuple(counts[level] / total for level in levels))


def _learn_vector(values: pl.Series, name: str) -> Vector:
    lengths = values.list.len() if isinstance(values.dtype, pl.List) else None
    found = [values.dtype.size] if lengths is None else lengths.unique().drop_nulls().to_list()  # type: ignore[attr-defined]
    if len(found) != 1 or values.null_count():
        raise LogError(
            f"column {name} holds lists of different lengths ({', '.join(map(str, sorted(found)))}"
            f"{', some missing' if values.null_count() else ''}): a vector needs one length"
        )
    return Vector(name, int(found[0]))


def _constant(name: str, value: Any) -> LogError:
    return LogError(
        f"column {name} has the same value in all rows ({value!r}): it says nothing, leave it out"
    )


def learn_encoder(table: pl.DataFrame, terms: Sequence[str]) -> Encoder:
    """Return the encoder of row features; `a*b` is an interaction, with `a` and `b` themselves.

    Vectors alone are taken as they are. With other columns there is an intercept.
    """
    columns: dict[str, Column] = {}
    products: dict[str, Product] = {}
    for term in terms:
        parts = [part.strip() for part in term.split("*")]
        if len(parts) > 2 or not all(parts):
            raise LogError(f"--features {term}: an interaction is of two columns, such as a*b")
        for part in parts:
            if part not in columns:
                columns[part] = learn_column(table[part], part)
        if len(parts) == 2:
            first, second = (columns[part] for part in parts)
            if isinstance(first, (Vector, Product)) or isinstance(second, (Vector, Product)):
                raise LogError(f"--features {term}: a column of lists has no interactions")
            products[f"{parts[0]}*{parts[1]}"] = Product(first, second)
    own = (*columns.values(), *products.values())
    return Encoder(own, intercept=not all(isinstance(column, Vector) for column in own))


def columns_of(terms: Sequence[str]) -> list[str]:
    """Return the columns that terms such as `a*b` need.

    >>> columns_of(["price", "price*country"])
    ['price', 'country']
    """
    return list(dict.fromkeys(part.strip() for term in terms for part in term.split("*")))


def encode(encoder: Encoder, table: pl.DataFrame) -> FloatArray:
    """Return the encoded rows of a table, `(n_rows, len(encoder))`; equal rows are encoded once."""
    used = table.select(encoder.names)
    if any(isinstance(kind, (pl.List, pl.Array)) for kind in used.dtypes):
        return encoder.encode(used.to_dicts())
    distinct = used.unique(maintain_order=True).with_row_index("place")
    place = used.join(
        distinct, on=used.columns, how="left", nulls_equal=True, maintain_order="left"
    )
    encoded: FloatArray = encoder.encode(distinct.drop("place").to_dicts())[place["place"]]
    return encoded
