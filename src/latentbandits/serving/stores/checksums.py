"""Checksums of rows: a row that was altered outside this program is refused, with its place."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from latentbandits.serving.errors import Damaged

_encode = msgspec.msgpack.Encoder().encode
_NONE = -1  # marks rows that were written without a checksum; no CRC is negative


class _Switch:
    on = True


def turn(*, on: bool) -> None:
    """Compute the checksums of rows that are written from now on, or do not."""
    _Switch.on = on


def checksum(table: str, values: Sequence[Any]) -> int:
    """Return the CRC-32 of a row's values, begun with the name of its table.

    A CRC notices every single flipped bit.

    >>> checksum("notes", ("a", b"1")) != checksum("notes", ("a", b"2"))
    True
    """
    return _sum(table, values) if _Switch.on else _NONE


_COLUMNS = {"sessions": 17, "decisions": 19, "rewards": 10, "models": 4, "activations": 5}
"""Numbers of columns in version 3, of tables with columns that were added later."""


def _sum(table: str, values: Sequence[Any]) -> int:
    """Return the checksum; columns that were added later are left out where they are empty, so
    that old rows stay valid.
    """
    if table in _COLUMNS and values[_COLUMNS[table] :].count(None) == len(values) - _COLUMNS[table]:
        values = values[: _COLUMNS[table]]
    return zlib.crc32(_encode(values), _seed(table))


@cache
def _seed(table: str) -> int:
    return zlib.crc32(table.encode())


def verified(table: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return a row without the checksum at its end; Damaged where that does not fit."""
    *content, expected = values
    if expected != _NONE and _sum(table, content) != expected:
        raise Damaged(f"row {content[0]!r} of the table {table} is damaged (checksum differs)")
    return content
