"""The rewards that a model allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray


class Support(Protocol):
    """A set of rewards. `str(support)` completes the sentence "rewards are ..."."""

    def contains(self, reward: FloatArray) -> BoolArray:
        """Return for each finite reward whether it is in the set."""

    @property
    def low(self) -> float:
        """The least reward; -inf if there is none."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the largest reward; None if the set is unbounded."""

    def around(self, value: float) -> tuple[float, float]:
        """Return the nearest rewards of the set below and above `value`.

        They are equal if the set contains `value`, or ends before it.
        """


@dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`, both included.

    `atoms` are rewards that have a probability of their own, and not a density.

    >>> Interval(low=0.0).contains(np.array([-0.1, 0.0, 2.0]))
    array([False,  True,  True])
    >>> Interval(low=0.0).around(-0.1)
    (0.0, 0.0)
    """

    low: float = -np.inf
    high: float = np.inf
    atoms: tuple[float, ...] = ()

    def contains(self, reward: FloatArray) -> BoolArray:
        inside: BoolArray = (reward >= self.low) & (reward <= self.high)
        return inside

    @property
    def bounds(self) -> tuple[float, float] | None:
        return (self.low, self.high) if np.isfinite([self.low, self.high]).all() else None

    def around(self, value: float) -> tuple[float, float]:
        nearest = min(max(value, self.low), self.high)
        return nearest, nearest

    def __str__(self) -> str:
        if self.high < np.inf:
            return f"from {self.low:g} to {self.high:g}"
        if self.low == 0:
            return "not negative"
        return "numbers" if self.low == -np.inf else f"at least {self.low:g}"


@dataclass(frozen=True)
class Counts:
    """The whole numbers from zero on.

    >>> Counts().contains(np.array([0.0, 1.5, 3.0]))
    array([ True, False,  True])
    >>> Counts().around(1.5)
    (1.0, 2.0)
    """

    def contains(self, reward: FloatArray) -> BoolArray:
        inside: BoolArray = (reward >= 0) & (reward == np.floor(reward))
        return inside

    @property
    def low(self) -> float:
        return 0.0

    @property
    def bounds(self) -> None:
        return None

    def around(self, value: float) -> tuple[float, float]:
        return float(max(0, math.floor(value))), float(max(0, math.ceil(value)))

    def __str__(self) -> str:
        return "counts (0, 1, 2, ...)"


@dataclass(frozen=True)
class OneOf:
    """Finitely many values, in increasing order.

    >>> OneOf((1.0, 3.0)).contains(np.array([1.0, 2.0, 9.0]))
    array([ True, False, False])
    >>> OneOf((1.0, 3.0)).around(1.2), OneOf((1.0, 3.0)).around(9.0)
    ((1.0, 3.0), (3.0, 3.0))
    """

    values: tuple[float, ...]

    def contains(self, reward: FloatArray) -> BoolArray:
        inside: BoolArray = reward == self.values[0]
        for value in self.values[1:]:  # for few values faster than np.isin
            inside |= reward == value
        return inside

    @property
    def low(self) -> float:
        return self.values[0]

    @property
    def bounds(self) -> tuple[float, float]:
        return self.low, self.values[-1]

    def around(self, value: float) -> tuple[float, float]:
        low, high = self.bounds
        inside = min(max(value, low), high)
        below = max(one for one in self.values if one <= inside)
        return below, min(one for one in self.values if one >= inside)

    def __str__(self) -> str:
        values = [f"{value:g}" for value in self.values]
        return "one of " + ", ".join(values) if len(values) > 2 else " or ".join(values)


REALS = Interval()
BINARY = OneOf((0.0, 1.0))


# One row of the table of models in the documentation.


class Summary(NamedTuple):
    """A short description of a model."""

    rewards: str  # the rewards it models
    call: str  # an example of its constructor
    prior: str  # the family of its prior
    arguments: str  # the meaning of its arguments
    has_features: bool = False  # whether actions have features
    sub_gaussian: bool = False  # whether `noise` is a sub-Gaussian scale, as regret bounds require

    @property
    def row(self) -> str:
        """The row in Markdown."""
        return f"| {self.rewards} | `{self.call}` | {self.prior} | {self.arguments} |"
