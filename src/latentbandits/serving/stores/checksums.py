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
    if not _Switch.on:
        return _NONE
    return _sum(table, values)


def _sum(table: str, values: Sequence[Any]) -> int:
    return zlib.crc32(_encode(_counted(table, values)), _seed(table))


_COLUMNS = {"sessions": 17}  # number of columns in version 3, for tables with columns added later


def _counted(table: str, values: Sequence[Any]) -> Sequence[Any]:
    """Leave out columns that were added later where they are empty: old rows stay valid."""
    n = _COLUMNS.get(table)
    if n is not None and len(values) > n and all(value is None for value in values[n:]):
        return values[:n]
    return values


@cache
def _seed(table: str) -> int:
    return zlib.crc32(table.encode())


def verified(table: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return a row without the checksum at its end; Damaged where that does not fit."""
    *content, expected = values
    if expected != _NONE and _sum(table, content) != expected:
        raise Damaged(f"row {content[0]!r} of the table {table} is damaged (checksum differs)")
    return content
