"""The position of the last commit, in a file next to the database, to detect a lost WAL."""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

_FORM = struct.Struct("<qI")


class Mark:
    """Remembers the last position that was committed.

    It is written after each commit, without waiting for the disk: it may lag behind the database
    after a power cut, and never runs ahead of it. A database whose last position is smaller has
    lost commits, because its write-ahead log was cut, damaged or removed.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """Return the position; 0 where there is none that can be trusted."""
        data = os.pread(self._descriptor, _FORM.size, 0)
        if len(data) == _FORM.size:
            position, expected = _FORM.unpack(data)
            if zlib.crc32(data[:8]) == expected:
                return int(position)
        return 0

    def write(self, position: int) -> None:
        """Write the position of the last commit."""
        data = position.to_bytes(8, "little")
        with suppress(OSError):  # the commit has succeeded: a stale mark is better than an error
            os.pwrite(self._descriptor, data + zlib.crc32(data).to_bytes(4, "little"), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
