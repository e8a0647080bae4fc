"""Names that people type: registries, which suggest the nearest known name."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")


class Registry(Generic[Thing]):
    """Things of one kind by name: models, policies, or stores.

    They are the library's own, those that other packages declare as entry points, and those that
    were added in this process.

    Args:
        kind: what they are, for messages.
        group: of the entry points.
        own: the library's.
        read: returns the name and the thing of an entry point, from its name and what it loads.

    >>> colours = Registry("colour", "examples.colours", {"red": 1})
    >>> colours.add("green", 2)
    >>> colours.find("green"), colours.all()
    (2, {'red': 1, 'green': 2})
    >>> colours.find("rad")
    Traceback (most recent call last):
    ValueError: unknown colour 'rad': did you mean 'red'? There are red, green
    """

    def __init__(
        self,
        kind: str,
        group: str,
        own: Mapping[str, Thing],
        read: Callable[[str, Any], tuple[str, Thing]] = lambda name, loaded: (name, loaded),
    ) -> None:
        self.kind, self.group, self.own, self._read = kind, group, own, read
        self.added: dict[str, Thing] = {}

    def check_free(self, name: str) -> None:
        """Raise ValueError if the library has something of this name."""
        if name in self.own:
            raise ValueError(f"{name!r} is a {self.kind} of latentbandits: choose another name")

    def add(self, name: str, thing: Thing) -> None:
        """Add a thing, in place of one that was added by this name.

        ValueError if the library has one of this name.
        """
        self.check_free(name)
        self.added[name] = thing

    def remove(self, name: str) -> None:
        """Remove what was added by this name."""
        self.added.pop(name, None)

    def all(self) -> dict[str, Thing]:
        """Return everything by name, the library's first."""
        return {**self.own, **self.declared, **self.added}

    def find(self, name: str) -> Thing:
        """Return the thing of this name; ValueError suggests the nearest name if there is none."""
        if name in self.own:
            return self.own[name]
        known = self.all()
        return known[one_of(self.kind, name, known)]

    @cached_property  # reading the metadata of every installed package takes milliseconds
    def declared(self) -> dict[str, Thing]:
        """The things that other installed packages declare."""
        from importlib.metadata import entry_points

        found = {}
        for point in sorted(entry_points(group=self.group)):
            try:
                name, thing = self._read(point.name, point.load())
                self.check_free(name)
                found[name] = thing
            except Exception as error:  # an error of a plug-in must not break this package
                message = f"the {self.kind} {point.name!r} of {point.value} was not loaded: {error}"
                warnings.warn(message, stacklevel=2)
        return found


def one_of(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is one of `known`.

    >>> one_of("policy", "mmST", ["mTS", "mmTS"])
    Traceback (most recent call last):
    ValueError: unknown policy 'mmST': did you mean 'mmTS'? There are mTS, mmTS
    """
    available = list(known)
    if name in available:
        return name
    near = nearest(name, available)
    hint = "." if near is None else f": did you mean {near!r}?"
    raise ValueError(f"unknown {kind} {name!r}{hint} There are {', '.join(available)}")


def nearest(name: str, known: Iterable[str], cutoff: float = 0.4) -> str | None:
    """Return the known name that is most like `name`, or None if none is like it.

    `cutoff` is the least similarity, from 0 to 1 (`difflib`).

    >>> nearest("Clik", ["user", "click"])
    'click'
    """
    lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=cutoff)
    return lower[near[0]] if near else None
