"""The reward family of a log: found by name, and set up for the log's rewards."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.learning.logs.formats import LogError
from latentbandits.models import registry
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.arms.learnable import Learnable, RewardFacts
from latentbandits.models.checks import FloatArray, positive_number

Rewards = str
"""The name of a reward family (`models.registry.reward_families`)."""

ArmsModel = GaussianArms | ConjugateArms


def make_family(
    name: Rewards, rewards: FloatArray | RewardFacts, noise: float | None = None
) -> Learnable:
    """Return the family `name`, set up for a log's `rewards`.

    Raise LogError if they are outside its support. `noise` fixes the standard deviation of
    Gaussian rewards.
    """
    kind = registry.reward_family(name)
    try:
        if isinstance(rewards, np.ndarray):
            family = kind.for_rewards(rewards)
        else:
            family = kind.for_facts(rewards)
        return family if noise is None else family.with_noise(positive_number("noise", noise))
    except ValueError as error:
        raise LogError(str(error)) from error


# The cell of the recording resolution around each reward.
#
# Families are compared by their probability of these cells. So a family cannot win by a density
# that grows without bound where many rewards are equal: the probability of a cell is at most one.

STEPS = (100.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.25, 0.2, 0.1, 0.05, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
"""Steps of the lattices that are tried."""

_FEW_VALUES = 20
_FINE = 1e-6  # the resolution of rewards on no lattice, in ranges of the rewards


class Cells(NamedTuple):
    """The intervals [r - below(r), r + above(r)]: one lattice step, or halfway to neighbours."""

    step: float | None
    values: FloatArray  # the distinct rewards, used if there is no step
    finer: float = 1.0  # cells are narrower by this factor

    def edges(self, rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper edges of every reward's cell."""
        if self.step is not None:
            half = self.step / 2 / self.finer
            return rewards - half, rewards + half
        middles = (self.values[1:] + self.values[:-1]) / 2
        first, last = 2 * self.values[0] - middles[0], 2 * self.values[-1] - middles[-1]
        edges = np.concatenate([[first], middles, [last]])
        which = np.searchsorted(self.values, rewards)
        below, above = rewards - edges[which], edges[which + 1] - rewards
        return rewards - below / self.finer, rewards + above / self.finer


def cells_of(rewards: FloatArray) -> Cells:
    """Return the cells of rewards: of a lattice (1, 1/2, 1/10, ...), of few values, or very fine.

    >>> cells_of(np.array([1.0, 3.5, 2.0])).edges(np.array([2.0]))
    (array([1.75]), array([2.25]))
    >>> bool(cells_of(np.random.default_rng(0).random(50)).step < 1e-6)
    True
    """
    values = np.unique(rewards)
    return cells_of_values(values, off_lattice(values))


def cells_of_values(values: FloatArray, distances: FloatArray) -> Cells:
    """Return the cells, given the distinct rewards and their `off_lattice` distances."""
    width = float(np.ptp(values))
    for step, distance in zip(STEPS, distances, strict=True):
        if distance < 1e-6 and step <= width:
            return Cells(step, values)
    if 1 < len(values) <= _FEW_VALUES:
        return Cells(None, values)
    return Cells(_FINE * (width or 1.0), values)


def off_lattice(values: FloatArray) -> FloatArray:
    """Return the largest distance of `values` from the multiples of each of `STEPS`, in steps."""
    return np.array([_distance(values / step) for step in STEPS])


def _distance(units: FloatArray) -> float:
    return float(np.abs(units - np.rint(units)).max())
