"""A lock that allows one process per store file, ends with it, and names it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from latentbandits.serving.errors import StoreError


class FileHolder:
    """Holds `path` until `release` or the end of the process, however it ends."""

    def __init__(self, path: Path, guarded: str) -> None:
        # Opened read-only, so that the lock does not prevent remounting the file system.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = _read(self._descriptor)
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


def _read(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
