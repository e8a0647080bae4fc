"""Compute or import a thing when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from latentbandits.extras import needed_by

if TYPE_CHECKING:
    # A protocol with read-only properties accepts a property. It does not accept a
    # cached_property: pyright compares the descriptor itself with the property's type.
    cached_property = property
else:
    from functools import cached_property

__all__ = ["cached_property", "lazy_exports"]


def lazy_exports(
    package: str,
    modules: Mapping[str, str],
    *collections: str,
    eager: Sequence[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__` (PEP 562), for names of other modules.

    `__dir__` lists the public names and no others, so that Tab shows them before they are loaded.

    Args:
        package: the package's own name.
        modules: the module of each name.
        collections: modules all of whose public names are exported too; they are imported when a
            name is not in `modules`.
        eager: further names that the package has imported already. Its `__all__` is made of all
            these names.

    >>> getter, _ = lazy_exports("here", {"sqrt": "math"})
    >>> getter("sqrt")(4.0)
    2.0
    >>> getter, _ = lazy_exports("here", {}, "math")
    >>> getter("sqrt")(4.0)
    2.0
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name in modules:
            with needed_by(modules[name]):
                return getattr(import_module(modules[name]), name)
        if name == "__all__":
            return sorted({*eager, *modules}.union(*map(public_names, collections)))
        if collections and not name.startswith("_"):
            # `from package import submodule` asks here first: it must not load the collection.
            here = package in sys.modules and name.islower()
            if here and find_spec(f"{package}.{name}") is not None:
                return import_module(f"{package}.{name}")
            for members in map(import_module, collections):
                if hasattr(members, name):
                    return getattr(members, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*sys.modules[package].__all__, *modules})

    return __getattr__, __dir__


def public_names(module: str) -> list[str]:
    """Return a module's `__all__`, or else the names in it that do not begin with `_`."""
    members = vars(import_module(module))
    return list(members.get("__all__", (name for name in members if not name.startswith("_"))))
