"""A SQLite file: the checksums of its pages, and the lock beside it.

Checksums of pages guard indexes and free space too; a CRC-32 guards each row, in any store
(`sql.Table`).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import time
from functools import cache
from pathlib import Path

import apsw

from latentbandits.serving.errors import StoreError

_RESERVED = 8  # bytes at the end of each page, for its checksum


# The checksum VFS of SQLite: every page of the file carries a checksum, verified when it is read.


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


def pages_are_verified(connection: apsw.Connection) -> bool:
    """Return whether the pages of this file carry checksums that are verified."""
    verified = connection.execute("PRAGMA checksum_verification").get
    return vfs() is not None and verified is not None and int(verified) == 1


def verify_pages(connection: apsw.Connection, *, on: bool) -> None:
    """Verify pages as they are read from now on, or no longer."""
    if vfs() is not None:
        connection.execute(f"PRAGMA checksum_verification = {int(on)}")


def prepare_pages(connection: apsw.Connection) -> None:
    """Let the pages of an empty file have room for a checksum; called before anything else."""
    if vfs() is not None:
        count = (ctypes.c_int * 1)(_RESERVED)
        connection.file_control("main", apsw.SQLITE_FCNTL_RESERVE_BYTES, ctypes.addressof(count))


def checksum_pages(connection: apsw.Connection) -> None:
    """Give every page of a file a checksum, by rewriting it (VACUUM)."""
    if vfs() is not None and not pages_are_verified(connection):
        prepare_pages(connection)
        connection.execute("VACUUM")


class FileHolder:
    """A lock that allows one process per store file, and names that process.

    It holds `path` until `release` or the end of the process, however it ends.
    """

    def __init__(self, path: Path, guarded: str) -> None:
        # Opened read-only, so that the lock does not prevent remounting the file system.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = _holder_of(self._descriptor)
            os.close(self._descriptor)
            raise StoreError(
                f"{guarded} is in use by {who}: stop that process, or give this one a store of "
                "its own (several processes can share a postgresql store)"
            ) from None
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        try:
            path.write_text(json.dumps(holder))
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Let another process hold the file."""
        os.close(self._descriptor)


def _holder_of(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
