"""Comparison of beliefs, which are nested tuples of arrays with sessions first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.numerics.arrays import leaves, map_leaves
from latentbandits.models.visit import Visit


def rows(tree: Any, index: NDArray[np.int64]) -> Any:
    """Return the belief of some of its sessions."""
    return map_leaves(lambda leaf: np.asarray(leaf)[index], tree)


def context_of(context: Any, index: NDArray[np.int64]) -> Any:
    """Return the context of some sessions: an array, a `Visit`, or None."""
    if context is None or isinstance(context, Visit):
        return None if context is None else context[index]
    return np.asarray(context)[index]


def assert_same(actual: Any, expected: Any, what: str, tolerance: float = 0.0) -> None:
    """Assert that two trees are equal leaf by leaf, to a relative and absolute `tolerance`."""
    ours, theirs = leaves(actual), leaves(expected)
    assert len(ours) == len(theirs), f"{what}: {len(ours)} arrays instead of {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape, f"{what}: shape {a.shape} instead of {b.shape}"
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)
