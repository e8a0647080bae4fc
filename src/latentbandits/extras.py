"""Say which extra installs a missing package, in one sentence that names exactly that extra."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

ROOMS: Mapping[str, str] = {
    "learning": "learning",
    "evaluation": "learning",
    "experiments": "experiments",
    "client": "client",
    "openfeature": "openfeature",
    "serving": "serving",
    "loop": "serving",
}
"""The extra that each folder of the library needs."""

COMMANDS: Mapping[str, str] = {
    "reproduce": "experiments",
    "serve": "serving",
    "export": "serving",
    "key": "serving",
    "check": "serving",
    "backup": "serving",
    "relearn": "serving",
}
"""The extra that each command needs; the others need `learning`."""

_OWN = {
    "openfeature": "openfeature",
    "psycopg": "postgresql",
    "pyspark": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
}
"""Packages that only one extra installs."""

_SERVICE = ("apsw", "httptools", "prometheus_client", "starlette", "uvicorn", "uvloop")
"""Packages of the service."""

_CLIENT = ("httpx", "msgspec")
"""Packages of the service and its client."""

_LEARNING = ("matplotlib", "rich", "sklearn", "zstandard")
"""Packages that the service does not have."""


class MissingExtraError(ModuleNotFoundError):
    """A package that an extra of latentbandits would install is not there."""


def missing(error: ModuleNotFoundError, what: str, extra: str) -> MissingExtraError:
    """Return the error that says how to get the package which `error` misses.

    >>> print(missing(ModuleNotFoundError(name="polars"), "latentbandits.learning", "learning"))
    latentbandits.learning needs the package 'polars': pip install 'latentbandits[learning]'
    """
    package = (error.name or "?").partition(".")[0]
    extra = _OWN.get(package, extra)
    if package in _SERVICE or (package in _CLIENT and extra != "client"):
        extra = "serving"
    if package in _LEARNING and extra != "experiments":
        extra = "learning"
    sentence = f"{what} needs the package {package!r}: pip install 'latentbandits[{extra}]'"
    return MissingExtraError(sentence, name=error.name)


@contextmanager
def needed_by(module: str) -> Iterator[None]:
    """Turn a missing package inside the block into the sentence about `module`'s extra."""
    try:
        yield
    except MissingExtraError:
        raise
    except ModuleNotFoundError as error:
        room = [*module.split("."), ""][1]
        if room not in ROOMS or (error.name or "").startswith("latentbandits"):
            raise
        raise missing(error, f"latentbandits.{room}", ROOMS[room]) from None
