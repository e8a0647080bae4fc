"""Names that a package exports but loads when they are first asked for: importing stays quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` (PEP 562) for names that live in other modules.

    >>> lazy_exports("here", {"sqrt": "math"})("sqrt")(4.0)
    2.0
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return __getattr__
