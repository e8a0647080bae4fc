"""API keys (random, shown once, kept as hashes), and the audit log of admin actions."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import secrets
import time
import tomllib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from latentbandits.replacing import replace_file
from latentbandits.serving.engine.idempotency import digest

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)
_BURST_SECONDS = 2.0  # a key may use its rate of this many seconds at once
_IDS = ("session", "into", "other", "request_id")  # details that name a user, or may do so
_log = logging.getLogger(__name__)
_audit = logging.getLogger("latentbandits.audit")


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key as the file has it.

    `sha256` is the hash of 256 random bits: too many to guess, so no slow hash is needed.
    `sessions` is the prefix that the ids of its sessions must have; `rate` is in decisions, rewards
    and other requests per second.
    """

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    scopes: list[Scope]
    sessions: str = ""
    rate: Annotated[float, Meta(gt=0)] | None = None


@dataclass(slots=True, eq=False)
class Caller:
    """The caller of a request: the name of a key, its rights, and its use so far."""

    name: str
    scopes: Collection[str]
    sessions: str = ""
    rate: float | None = None
    clock: Callable[[], float] = time.monotonic
    _tokens: float = field(init=False)
    _updated: float = field(init=False)

    def __post_init__(self) -> None:
        self.scopes = frozenset(self.scopes)
        self._tokens = self._most()
        self._updated = self.clock()

    def _most(self) -> float:
        return math.inf if self.rate is None else max(1.0, self.rate * _BURST_SECONDS)

    def may(self, scope: str) -> bool:
        """Return whether the key has this scope."""
        return scope in self.scopes or "admin" in self.scopes

    def owns(self, session: str) -> bool:
        """Return whether the key may ask about this session."""
        return session.startswith(self.sessions)

    def wait(self) -> float:
        """Return the seconds until this key may send another request; 0: now."""
        if self.rate is None:
            return 0.0
        now = self.clock()
        self._tokens = min(self._most(), self._tokens + (now - self._updated) * self.rate)
        self._updated = now
        return 0.0 if self._tokens > 0 else (1e-9 - self._tokens) / self.rate

    def spend(self, work: int) -> None:
        """Count work that was let in; a batch may leave a debt, which later requests wait for."""
        self._tokens -= work

    def inherit(self, earlier: Caller) -> None:
        """Continue with the use count of the same key from before the file was read again."""
        if self.rate is not None:  # use without a rate is no debt that a later rate asks for
            self._tokens = min(self._most(), earlier._tokens)
            self._updated = earlier._updated


ANYONE = Caller("", SCOPES)
"""The caller where the service has no keys."""

BEARER = Caller("token", ("reward",))
"""The caller whom the reward tokens of the request let in."""


class Keys:
    """The callers by the hash of their key; read again when the file has changed."""

    def __init__(self, path: str) -> None:
        """Read the file; ValueError if it is invalid or holds no keys."""
        self._path = Path(path)
        self._stamp = _stamp(self._path)
        self._callers: dict[str, Caller] = {}
        self._take(_read(self._path))
        if not self._callers:
            raise ValueError(f"{path} holds no keys: add one with `latentbandits key`")

    def caller(self, presented: str) -> Caller | None:
        """Return the caller of a key; None if the key is unknown."""
        return self._callers.get(_hashed(presented))

    def reload(self, *, force: bool = False) -> bool:
        """Read the file again if it has changed; a file that is wrong changes nothing.

        Where the last key was removed, no request is let in any more.
        """
        stamp = _stamp(self._path)
        if stamp == self._stamp and not force:
            return False
        self._stamp = stamp
        try:
            self._take(_read(self._path))
        except ValueError as error:
            _log.error("the keys are as before: %s", error)
            return False
        level = logging.INFO if self._callers else logging.WARNING
        _log.log(level, "%d keys from %s", len(self._callers), self._path)
        return True

    def _take(self, keys: dict[str, Key]) -> None:
        before = self._callers
        self._callers = {
            key.sha256: Caller(name, key.scopes, key.sessions, key.rate)
            for name, key in keys.items()
        }
        for sha256 in self._callers.keys() & before.keys():
            self._callers[sha256].inherit(before[sha256])


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _hashed(key: str) -> str:
    """Return the SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def add_key(
    path: str, name: str, scopes: Collection[str], sessions: str = "", rate: float | None = None
) -> str:
    """Make a key, add its hash to the file, and return the key, which is shown only this once."""
    unknown = set(scopes) - set(SCOPES)
    if unknown or not scopes:
        raise ValueError(f"scopes are {', '.join(SCOPES)}; got {', '.join(sorted(scopes)) or '-'}")
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"a key's name has letters, digits, - and _; got {name!r}")
    if not sessions.isprintable() or len(sessions) > 100:
        raise ValueError(
            f"sessions is a prefix of up to 100 printable characters; got {sessions!r}"
        )
    if rate is not None and not 0 < rate < math.inf:
        raise ValueError(f"rate must be a positive number of requests per second; got {rate:g}")
    target = Path(path)
    existing = _read(target) if target.exists() else {}
    if name in existing:
        raise ValueError(f"{path} has a key named {name!r} already: remove it there first")
    key = f"lb_{secrets.token_urlsafe(32)}"
    listed = ", ".join(f'"{scope}"' for scope in sorted(scopes))
    entry = f'[{name}]\nsha256 = "{_hashed(key)}"\nscopes = [{listed}]\n'
    if sessions:
        entry += f"sessions = {msgspec.json.encode(sessions).decode()}\n"
    if rate is not None:
        entry += f"rate = {float(rate)!r}\n"
    text = target.read_text() + "\n" if target.exists() else ""
    try:
        replace_file(target, (text + entry).encode())
    except OSError as error:
        raise ValueError(f"cannot write the keys file {path}: {error.strerror}") from None
    return key


def _read(path: Path) -> dict[str, Key]:
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), dict[str, Key])
    except OSError as error:
        raise ValueError(f"cannot read the keys file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path} is not a file of keys: {error}") from None


class Audit:
    """One JSON line for every admin action, done or refused.

    Lines are appended to a file that only its owner can read; without one, they go to the log
    alone.
    """

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
        _audit.info("%s", line.decode())
        if self._descriptor is not None:
            try:
                os.write(self._descriptor, line + b"\n")
                os.fsync(self._descriptor)
            except OSError as error:
                _audit.error("the audit log cannot be written: %s", error.strerror)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
