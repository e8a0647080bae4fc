"""API keys: random, shown once, kept as hashes, each with the scopes it opens."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Literal, get_args

import msgspec

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`sha256` of a key of 256 random bits: too many to guess, so no slow hash is needed."""

    sha256: str
    scopes: list[Scope]


class Keys:
    """Which scopes a presented key opens. `admin` opens everything."""

    def __init__(self, keys: dict[str, Key]) -> None:
        self._scopes = {key.sha256: frozenset(key.scopes) for key in keys.values()}

    @classmethod
    def read(cls, path: str) -> Keys:
        """ValueError says what is wrong with the file."""
        keys = _read(Path(path))
        if not keys:
            raise ValueError(f"{path} holds no keys: add one with `latentbandits key`")
        return cls(keys)

    def scopes(self, presented: str) -> frozenset[str] | None:
        """None for a key that is not one of ours."""
        return self._scopes.get(digest(presented))


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def add_key(path: str, name: str, scopes: Collection[str]) -> str:
    """Make a key, add its hash to the file, and return it: it cannot be had again."""
    unknown = set(scopes) - set(SCOPES)
    if unknown or not scopes:
        raise ValueError(f"scopes are {', '.join(SCOPES)}; got {', '.join(sorted(scopes)) or '-'}")
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise ValueError(f"a key's name has letters, digits, - and _; got {name!r}")
    target = Path(path)
    existing = _read(target) if target.exists() else {}
    if name in existing:
        raise ValueError(f"{path} has a key named {name!r} already: remove it there first")
    key = f"lb_{secrets.token_urlsafe(32)}"
    listed = ", ".join(f'"{scope}"' for scope in sorted(scopes))
    entry = f'[{name}]\nsha256 = "{digest(key)}"\nscopes = [{listed}]\n'
    text = target.read_text() + "\n" if target.exists() else ""
    try:  # beside it first: the keys that are there must not be lost half-way
        descriptor, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(descriptor, "w") as file:
            file.write(text + entry)
        os.replace(scratch, target)
    except OSError as error:
        raise ValueError(f"cannot write the keys file {path}: {error.strerror}") from None
    return key


def _read(path: Path) -> dict[str, Key]:
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), dict[str, Key])
    except OSError as error:
        raise ValueError(f"cannot read the keys file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path} is not a file of keys: {error}") from None
