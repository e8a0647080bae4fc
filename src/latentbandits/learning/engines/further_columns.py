"""Further columns of a log beside user, action and reward, as engines store them with its rows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

MORE = "more:"
"""The beginning of the names of further columns: they may be named as the others are."""


def further_names(columns: Sequence[str]) -> list[str]:
    """Return the names of stored columns that are further columns."""
    return [name for name in columns if name.startswith(MORE)]


def beside_of(rows: pl.DataFrame) -> pl.DataFrame | None:
    """Return the further columns of stored rows by their own names; None if there are none.

    >>> beside_of(pl.DataFrame({"user": [0], "more:price": [2.5]})).columns
    ['price']
    """
    names = further_names(rows.columns)
    return rows.select(names).rename(lambda name: name.removeprefix(MORE)) if names else None
