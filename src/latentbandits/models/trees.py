"""Functions of a belief: nested tuples of arrays, each with sessions first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def map_leaves(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply `function` to every array of `trees`, which have the same structure.

    >>> map_leaves(lambda array: array + 1, (1, (2, 3)))
    (2, (3, 4))
    """
    first = trees[0]
    if not isinstance(first, tuple):
        return None if first is None else function(*trees)
    branches = [map_leaves(function, *parts) for parts in zip(*trees, strict=True)]
    return type(first)(*branches) if hasattr(first, "_fields") else tuple(branches)


def leaves(tree: Any) -> list[NDArray[Any]]:
    """Return the arrays of a tree, in order.

    >>> leaves((1, (2, None)))
    [array(1), array(2)]
    """
    if isinstance(tree, tuple):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [] if tree is None else [np.asarray(tree)]


def concatenate(trees: Sequence[Any]) -> Any:
    """Return the beliefs of several sessions as one.

    >>> concatenate([(np.ones(1),), (np.zeros(1),)])
    (array([1., 0.]),)
    """
    if len(trees) == 1:
        return trees[0]
    return map_leaves(lambda *parts: np.concatenate(parts), *trees)


def separate(tree: Any, n: int) -> list[Any]:
    """Return the belief of each of `n` sessions as a copy, which does not keep the others alive.

    >>> separate((np.array([1.0, 0.0]),), 2)
    [(array([1.]),), (array([0.]),)]
    """
    if n == 1:
        return [tree]
    if not isinstance(tree, tuple):
        return [None if tree is None else tree[i : i + 1].copy() for i in range(n)]
    branches = zip(*[separate(branch, n) for branch in tree], strict=True)
    return [type(tree)(*parts) if hasattr(tree, "_fields") else parts for parts in branches]
