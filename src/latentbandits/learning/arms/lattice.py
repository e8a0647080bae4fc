"""The cell of the real line around each reward, for rewards on a lattice or with few values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray

STEPS = (100.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.25, 0.2, 0.1, 0.05, 0.01)
"""Steps of the lattices that are tried."""

_FEW_VALUES = 20


class Cells(NamedTuple):
    """The intervals [r - below(r), r + above(r)]: one lattice step, or halfway to neighbours."""

    step: float | None
    values: FloatArray  # the distinct rewards, used if there is no lattice

    def edges(self, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper edges of every reward's cell."""
        if self.step is not None:
            return rewards - self.step / 2, rewards + self.step / 2
        middles = (self.values[1:] + self.values[:-1]) / 2
        first, last = 2 * self.values[0] - middles[0], 2 * self.values[-1] - middles[-1]
        edges = np.concatenate([[first], middles, [last]])
        which = np.searchsorted(self.values, rewards)
        return edges[which], edges[which + 1]


def cells_of(rewards: FloatArray) -> Cells | None:
    """Return the cells of rewards on a lattice (1, 1/2, 1/10, ...) or of few values; else None.

    >>> cells_of(np.array([1.0, 3.5, 2.0])).edges(np.array([2.0]))
    (array([1.75]), array([2.25]))
    >>> cells_of(np.random.default_rng(0).random(50)) is None
    True
    """
    values = np.unique(rewards)
    return cells_of_values(values, off_lattice(values))


def cells_of_values(values: FloatArray, distances: FloatArray) -> Cells | None:
    """Return the cells, given the distinct rewards and their `off_lattice` distances."""
    for step, distance in zip(STEPS, distances, strict=True):
        if distance < 1e-6:
            return Cells(step, values)
    return Cells(None, values) if 1 < len(values) <= _FEW_VALUES else None


def off_lattice(values: FloatArray) -> FloatArray:
    """Return the largest distance of `values` from the multiples of each of `STEPS`, in steps."""
    return np.array([_distance(values / step) for step in STEPS])


def _distance(units: FloatArray) -> float:
    return float(np.abs(units - np.rint(units)).max())
