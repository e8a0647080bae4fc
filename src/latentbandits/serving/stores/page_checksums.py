"""SQLite's checksum VFS: every page of the file carries a checksum that is verified when read."""

from __future__ import annotations

import ctypes
from functools import cache

import apsw

_RESERVED = 8  # bytes at the end of each page


@cache
def vfs() -> str | None:
    """Return the name of the checksum VFS; None where this apsw was built without it."""
    try:
        from apsw import sqlite_extra
    except ImportError:
        return None
    if sqlite_extra.has("cksumvfs") is None:
        return None
    default = apsw.Connection(":memory:")
    try:
        sqlite_extra.load(default, "cksumvfs")
    except (apsw.Error, OSError):
        return None
    finally:
        default.close()
    return "cksmvfs"


def open_file(path: str, flags: int) -> apsw.Connection:
    """Open a SQLite file with the checksum VFS where there is one."""
    name = vfs()
    if name is None:
        return apsw.Connection(path, flags=flags)
    return apsw.Connection(path, flags=flags, vfs=name)


def are_on(connection: apsw.Connection) -> bool:
    """Return whether the pages of this file carry checksums that are verified."""
    verified = connection.execute("PRAGMA checksum_verification").get
    return vfs() is not None and verified is not None and int(verified) == 1


def verify(connection: apsw.Connection, *, on: bool) -> None:
    """Verify pages as they are read from now on, or no longer."""
    if vfs() is not None:
        connection.execute(f"PRAGMA checksum_verification = {int(on)}")


def prepare(connection: apsw.Connection) -> None:
    """Let the pages of an empty file have room for a checksum; called before anything else."""
    if vfs() is not None:
        count = (ctypes.c_int * 1)(_RESERVED)
        connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(count))


def turn_on(connection: apsw.Connection) -> None:
    """Give every page of a file a checksum, by rewriting it (VACUUM)."""
    if vfs() is not None and not are_on(connection):
        prepare(connection)
        connection.execute("VACUUM")
