"""The audit log: one JSON line for every admin action, done or refused."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import msgspec

from latentbandits.serving.engine.once import digest

_IDS = ("session", "into", "other", "request_id")  # details that name a user, or may do so
_log = logging.getLogger("latentbandits.audit")


class Audit:
    """Appends to a file that only its owner can read; without one, lines go to the log alone."""

    def __init__(self, path: str | None) -> None:
        self._descriptor: int | None = None
        if path is not None:
            try:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(path, flags, 0o600)
            except OSError as error:
                raise ValueError(f"cannot write the audit log {path}: {error.strerror}") from None

    def note(self, key: str, action: str, details: dict[str, Any], status: int) -> None:
        """Write a line to the disk; `key` is the name of the caller's key, never the key.

        A line stays when its user is forgotten: it has digests of the ids that name users.
        """
        details = {
            name: digest(value) if name in _IDS and isinstance(value, str) else value
            for name, value in details.items()
        }
        if "action" in details:  # an action of the catalogue; "action" below is the administrator's
            details = {**details, "id": details["action"]}
        entry = {**details, "time": time.time(), "key": key or None, "action": action}
        line = msgspec.json.encode({**entry, "status": status})
        _log.info("%s", line.decode())
        if self._descriptor is not None:
            try:
                os.write(self._descriptor, line + b"\n")
                os.fsync(self._descriptor)
            except OSError as error:
                _log.error("the audit log cannot be written: %s", error.strerror)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
