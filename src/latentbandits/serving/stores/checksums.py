"""Checksums of rows: a row that was altered outside this program is refused, with its place."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from latentbandits.serving.errors import Damaged

_encode = msgspec.msgpack.Encoder().encode


def checksum(table: str, values: Sequence[Any]) -> int:
    """Return the CRC-32 of a row's values, begun with the name of its table.

    A CRC notices every single flipped bit.

    >>> checksum("notes", ("a", b"1")) != checksum("notes", ("a", b"2"))
    True
    """
    return zlib.crc32(_encode(values), zlib.crc32(table.encode()))


def verified(table: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return a row without the checksum at its end; Damaged where that does not fit."""
    *content, expected = values
    if checksum(table, content) != expected:
        raise Damaged(f"row {content[0]!r} of the table {table} is damaged (checksum differs)")
    return content
