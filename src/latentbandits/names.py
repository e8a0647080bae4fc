"""Names that people type: the nearest known one is suggested."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
