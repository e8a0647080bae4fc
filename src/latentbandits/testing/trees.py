"""Beliefs are nested tuples of arrays, sessions first: taking rows of them and comparing them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray


def leaves(tree: Any) -> list[NDArray[Any]]:
    """The arrays of a belief, in order."""
    if isinstance(tree, tuple):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [] if tree is None else [np.asarray(tree)]


def rows(tree: Any, index: NDArray[np.int64]) -> Any:
    """The same belief for some of its sessions."""
    if isinstance(tree, tuple):
        branches = [rows(branch, index) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return None if tree is None else np.asarray(tree)[index]


def snapshot(value: Any) -> Any:
    return copy.deepcopy(value)


def assert_same(actual: Any, expected: Any, what: str, tolerance: float = 0.0) -> None:
    """Equal leaf by leaf, to a relative and absolute `tolerance`."""
    ours, theirs = leaves(actual), leaves(expected)
    assert len(ours) == len(theirs), f"{what}: {len(ours)} arrays instead of {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape, f"{what}: shape {a.shape} instead of {b.shape}"
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)
