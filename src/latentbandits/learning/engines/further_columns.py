"""Further columns of a log, stored by engines next to user, action and reward."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

MORE = "more:"
"""Prefix of the stored names of further columns, so they cannot clash with other names."""


def further_names(columns: Sequence[str]) -> list[str]:
    """Return the names of stored columns that are further columns."""
    return [name for name in columns if name.startswith(MORE)]


def beside_of(rows: pl.DataFrame) -> pl.DataFrame | None:
    """Return the further columns of stored rows under their original names; None without any.

    >>> beside_of(pl.DataFrame({"user": [0], "more:price": [2.5]})).columns
    ['price']
    """
    names = further_names(rows.columns)
    return rows.select(names).rename(lambda name: name.removeprefix(MORE)) if names else None
