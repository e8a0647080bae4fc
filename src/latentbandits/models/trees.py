"""What a session has learned is a nested tuple of arrays, sessions first: work on each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from latentbandits.models.checks import FloatArray


def map_leaves(function: Callable[..., FloatArray], *trees: Any) -> Any:
    """`function` of every array of `trees`, which have the same structure.

    >>> map_leaves(lambda array: array + 1, (1, (2, 3)))
    (2, (3, 4))
    """
    first = trees[0]
    if not isinstance(first, tuple):
        return function(*trees)
    branches = [map_leaves(function, *parts) for parts in zip(*trees, strict=True)]
    return type(first)(*branches) if hasattr(first, "_fields") else tuple(branches)
