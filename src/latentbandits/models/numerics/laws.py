"""The rewards that a model allows, and the distribution of a mean reward given the state.

A law has moments and a distribution function. Arrays are `(n, n_states, n_actions)`, or
`(n_cases, n_states)` after `take`. The functions take x of shape `(n_cases, 1)`. scipy is imported
where it is used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import NamedTuple, Protocol, Self

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import blocks


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
    """All numbers from `low` to `high`, both included unless `low_is_open`.

    `atoms` are rewards with a probability instead of a density.

    >>> Interval(low=0.0).contains(np.array([-0.1, 0.0, 2.0]))
    array([False,  True,  True])
    >>> Interval(low=0.0).around(-0.1)
    (0.0, 0.0)
    """

    low: float = -np.inf
    high: float = np.inf
    atoms: tuple[float, ...] = ()
    low_is_open: bool = False

    def contains(self, reward: FloatArray) -> BoolArray:
        above = reward > self.low if self.low_is_open else reward >= self.low
        return above & (reward <= self.high)

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

    low = 0.0
    bounds = None

    def contains(self, reward: FloatArray) -> BoolArray:
        inside: BoolArray = (reward >= 0) & (reward == np.floor(reward))
        return inside

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


_TINY = np.finfo(np.float64).tiny
_SMALL = 1e-150  # smaller mean rewards count as zero; its inverse is finite


class Law(ABC):
    """A distribution for every state and action; the fields of subclasses are its parameters."""

    @property
    @abstractmethod
    def mean(self) -> FloatArray: ...

    @property
    @abstractmethod
    def variance(self) -> FloatArray: ...

    @abstractmethod
    def below(self, x: FloatArray) -> FloatArray:
        """Return P(mean reward <= x), `(n_cases, n_states)`."""

    @abstractmethod
    def density(self, x: FloatArray) -> FloatArray:
        """Return the density at x, `(n_cases, n_states)`; 0 for a law of points."""

    def take(self, session: IntArray, action: IntArray) -> Self:
        """Return the laws of some (session, action) pairs, `(n_cases, n_states)`."""
        return self._each(lambda value: _pairs(value, session, action))

    def rows(self, keep: BoolArray | IntArray) -> Self:
        """Return the laws of some cases, after `take`."""
        return self._each(lambda value: value[keep])

    def _each(self, change: Callable[[FloatArray], FloatArray]) -> Self:
        values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]
        made = (change(value) if isinstance(value, np.ndarray) else value for value in values)
        return type(self)(*made)


def join_states(laws: Sequence[Law], rows: IntArray, n_rows: int) -> Law:
    """Return one law of several states from laws of one state each.

    The arrays of `laws` are `(1 or n_rows, 1, ...)`, and `rows` are those to take.
    """

    def join(*values: FloatArray | float) -> FloatArray | float:
        if not isinstance(values[0], np.ndarray):
            return values[0]
        wide = [np.broadcast_to(v, (n_rows, *np.shape(v)[1:]))[rows] for v in values]
        return np.concatenate(wide, axis=1)

    names = [field.name for field in fields(laws[0])]  # type: ignore[arg-type]
    return type(laws[0])(*(join(*(getattr(law, name) for law in laws)) for name in names))


class Component(NamedTuple):
    """A law and its share of the posterior given the state, `(n, n_states)`; None is all of it."""

    share: FloatArray | None
    law: Law


def _pairs(values: FloatArray, session: IntArray, action: IntArray) -> FloatArray:
    """Return the rows of `(1 or n, n_states, ..., n_actions)` of some (session, action) pairs."""
    return values[0 if len(values) == 1 else session, ..., action]


@dataclass(frozen=True, eq=False)
class Normal(Law):
    """N(mean, deviation^2); a deviation of zero is a point.

    >>> law = Normal(np.zeros((1, 1, 1)), np.ones((1, 1, 1))).take(np.array([0]), np.array([0]))
    >>> law.below(np.array([[0.0]]))
    array([[0.5]])
    """

    centre: FloatArray
    deviation: FloatArray

    @property
    def mean(self) -> FloatArray:
        return self.centre

    @property
    def variance(self) -> FloatArray:
        return self.deviation**2

    def _standard(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            z: FloatArray = (x - self.centre) / self.deviation
        z[np.isnan(z)] = 0.0
        return z

    def below(self, x: FloatArray) -> FloatArray:
        from scipy.special import ndtr

        chance: FloatArray = ndtr(self._standard(x))
        return np.where(self.deviation > 0, chance, x >= self.centre)

    def density(self, x: FloatArray) -> FloatArray:
        z = self._standard(x)
        density: FloatArray = np.exp(-0.5 * z * z)
        density /= np.sqrt(2 * np.pi) * np.maximum(self.deviation, _TINY)
        return np.where(self.deviation > 0, density, 0.0)


@dataclass(frozen=True, eq=False)
class Student(Law):
    """Student's t with `freedom` above 2, shifted by `centre` and scaled by `scale`."""

    centre: FloatArray
    scale: FloatArray
    freedom: FloatArray

    @property
    def mean(self) -> FloatArray:
        return self.centre

    @property
    def variance(self) -> FloatArray:
        return self.scale**2 * self.freedom / (self.freedom - 2)

    def below(self, x: FloatArray) -> FloatArray:
        from scipy.special import stdtr

        return stdtr(self.freedom, (x - self.centre) / self.scale)

    def density(self, x: FloatArray) -> FloatArray:
        from scipy.special import gammaln

        n = self.freedom
        t = (x - self.centre) / self.scale
        log_density = gammaln((n + 1) / 2) - gammaln(n / 2) - 0.5 * np.log(n * np.pi)
        log_density -= (n + 1) / 2 * np.log1p(t * t / n)
        return np.exp(log_density) / self.scale


@dataclass(frozen=True, eq=False)
class Beta(Law):
    """low + width * Beta(a, b)."""

    a: FloatArray
    b: FloatArray
    low: float = 0.0
    width: float = 1.0

    @property
    def mean(self) -> FloatArray:
        return self.low + self.width * self.a / (self.a + self.b)

    @property
    def variance(self) -> FloatArray:
        total = self.a + self.b
        return self.width**2 * (self.a / total) * (self.b / total) / (total + 1)

    def _unit(self, x: FloatArray) -> FloatArray:
        unit = np.asarray((x - self.low) / self.width, np.float64)
        return np.clip(unit, 0.0, 1.0)

    def below(self, x: FloatArray) -> FloatArray:
        from scipy.special import betainc

        return np.asarray(betainc(self.a, self.b, self._unit(x)), np.float64)

    def density(self, x: FloatArray) -> FloatArray:
        from scipy.special import betaln, xlog1py, xlogy

        u = self._unit(x)
        inside = np.clip(u, 1e-300, 1 - 1e-16)
        log_density = xlogy(self.a - 1, inside) + xlog1py(self.b - 1, -inside)
        log_density -= betaln(self.a, self.b)
        return np.where((u > 0) & (u < 1), np.exp(log_density) / self.width, 0.0)


@dataclass(frozen=True, eq=False)
class Gamma(Law):
    """Gamma with `shape` and `rate`."""

    shape: FloatArray
    rate: FloatArray

    @property
    def mean(self) -> FloatArray:
        return self.shape / self.rate

    @property
    def variance(self) -> FloatArray:
        return self.shape / self.rate**2

    def below(self, x: FloatArray) -> FloatArray:
        from scipy.special import gammainc

        return gammainc(self.shape, self.rate * np.maximum(x, 0.0))

    def density(self, x: FloatArray) -> FloatArray:
        from scipy.special import gammaln

        z = self.rate * np.maximum(x, _TINY)
        log_density = (self.shape - 1) * np.log(z) - z - gammaln(self.shape)
        return np.where(x > 0, self.rate * np.exp(log_density), 0.0)


@dataclass(frozen=True, eq=False)
class InverseGamma(Law):
    """scale / G with G ~ Gamma(shape, 1) and `shape` above 2."""

    shape: FloatArray
    scale: FloatArray

    @property
    def mean(self) -> FloatArray:
        return self.scale / (self.shape - 1)

    @property
    def variance(self) -> FloatArray:
        return self.mean**2 / (self.shape - 2)

    def below(self, x: FloatArray) -> FloatArray:
        from scipy.special import gammaincc

        return gammaincc(self.shape, self.scale / np.maximum(x, _SMALL))

    def density(self, x: FloatArray) -> FloatArray:
        from scipy.special import gammaln

        inside = np.maximum(x, _SMALL)
        z = self.scale / inside
        density = np.exp(self.shape * np.log(z) - z - gammaln(self.shape)) / inside
        return np.where(x > 0, density, 0.0)


@dataclass(frozen=True, eq=False)
class Points(Law):
    """Weighted points: particles of a state, or the one mean reward of a certain state.

    `values` is `(n, n_states, n_points, n_actions)`, `shares` `(n, n_states, n_points)`.
    """

    values: FloatArray
    shares: FloatArray

    @property
    def mean(self) -> FloatArray:
        mean: FloatArray = np.einsum("nspk,nsp->nsk", self.values, self._shares)
        return mean

    @property
    def variance(self) -> FloatArray:
        offsets = self.values - self.mean[:, :, None]
        variance: FloatArray = np.einsum("nspk,nspk,nsp->nsk", offsets, offsets, self._shares)
        return variance

    @property
    def _shares(self) -> FloatArray:
        return np.broadcast_to(self.shares, (len(self.values), *self.shares.shape[1:]))

    def take(self, session: IntArray, action: IntArray) -> Self:
        shares = self.shares[0 if len(self.shares) == 1 else session]
        shares = np.broadcast_to(shares, (len(session), *self.shares.shape[1:]))
        return type(self)(_pairs(self.values, session, action), shares)

    def below(self, x: FloatArray) -> FloatArray:
        chance: FloatArray = np.where(self.values <= x[:, :, None], self.shares, 0.0).sum(axis=2)
        return chance

    def density(self, x: FloatArray) -> FloatArray:
        return np.zeros(self.values.shape[:2])


# The probability that each of several independent normal variables is the largest.
#
# It is the propensity of Thompson sampling for independent actions. Rewards that share a parameter
# vector have no such integral; their draws are counted, the decision included, so that a chosen
# action never has propensity zero.

_REACH = 6.0  # standard deviations; the probability beyond is 1e-9
_STEP = 1.5  # step in standard deviations of the narrowest variable that can be the largest
_NEGLIGIBLE = 1e-8  # problems of smaller weight are skipped


def probability_largest(
    mean: FloatArray,
    deviation: FloatArray,
    eligible: BoolArray | None = None,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Return P(Y_a > Y_b for all b != a) of independent Y_a ~ N(mean_a, deviation_a^2).

    For each variable this is the integral of its density times the distribution functions of the
    others, by Gauss-Legendre quadrature. The pieces follow the narrowest variable that can still
    be the largest, so that a narrow one among wide ones is resolved. Variables of deviation zero
    are points: the largest wins if all others are below it, and ties share equally.

    Args:
        mean: `(n, m, k)`, m problems of k variables for each of n sessions.
        deviation: like `mean`.
        eligible: `(n, k)`; None is all.
        weights: `(n, m)`; problems of negligible weight get the uniform answer.

    Returns:
        Probabilities `(n, m, k)`, which sum to one over k.

    >>> probability_largest(np.zeros((1, 1, 4)), np.ones((1, 1, 4))).round(6)
    array([[[0.25, 0.25, 0.25, 0.25]]])
    """
    n, m, k = mean.shape
    mask = np.ones((n, k), np.bool_) if eligible is None else eligible
    result = np.repeat((mask / mask.sum(axis=1, keepdims=True))[:, None], m, axis=1)
    session, problem = np.nonzero(np.ones((n, m)) if weights is None else weights > _NEGLIGIBLE)
    for block in blocks(len(session), 100 * k):
        chosen = session[block], problem[block]
        result[chosen] = _solve(mean[chosen], deviation[chosen], mask[session[block]])
    return result


def _solve(mean: FloatArray, deviation: FloatArray, eligible: BoolArray) -> FloatArray:
    """Solve problems given as `(n, k)` arrays."""
    from scipy.special import ndtr  # importing it takes a tenth of a second

    nodes, node_weights = _rule()
    wide = eligible & (deviation >= np.finfo(np.float64).tiny)
    points = eligible & ~wide
    # Centre at the likely maximum, so that deviations below a mean's rounding error are kept.
    lower = np.where(eligible, mean - _REACH * np.where(wide, deviation, 0.0), -np.inf)
    place = mean - mean[np.arange(len(mean)), lower.argmax(axis=1), None]
    centre = np.where(wide, place, -np.inf)  # variables that are not wide are always below
    scale = np.where(wide, deviation, 1.0)
    highest_point = np.where(points, place, -np.inf).max(axis=1, keepdims=True)
    floor = np.maximum((centre - _REACH * scale).max(axis=1, keepdims=True), highest_point)

    result = np.zeros(mean.shape)
    top = points & (place == floor)
    if top.any():
        chance = ndtr((floor - centre) / scale).prod(axis=1, keepdims=True)
        np.copyto(result, chance / np.maximum(top.sum(axis=1, keepdims=True), 1), where=top)

    owner, left, width = _pieces(floor, centre, scale)
    x = left[:, None] + width[:, None] * nodes
    with np.errstate(over="ignore"):  # z overflows far above a narrow variable
        z = (x[:, :, None] - centre[owner, None]) / scale[owner, None]
        density = np.exp(-0.5 * z * z)
    below = ndtr(z)  # not zero: x is above the floor
    density /= below
    all_below = below.prod(axis=2) * (width[:, None] * node_weights)
    integrals = (all_below[:, None] @ density)[:, 0]
    integrals /= scale[owner] * math.sqrt(2 * math.pi)
    ends = np.searchsorted(owner, np.arange(len(mean) + 1))
    sums = np.concatenate([np.zeros((1, mean.shape[1])), integrals.cumsum(axis=0)])
    result += np.diff(sums[ends], axis=0)
    result /= result.sum(axis=1, keepdims=True)
    return result


@cache
def _rule() -> tuple[FloatArray, FloatArray]:
    """Return Gauss-Legendre nodes and weights on (0, 1), exact to polynomials of degree 15."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    return (1 + nodes) / 2, weights / 2


def _pieces(
    floor: FloatArray, centre: FloatArray, scale: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the pieces of the integral: their problem, left end and width.

    The pieces cover the range from the floor, below which no maximum lies, to the end of the
    widest variable's reach. The width of a piece follows the narrowest variable whose reach has not
    ended there.
    """
    order = scale.argsort(axis=1)
    reach = np.take_along_axis(centre + _REACH * scale, order, axis=1)
    end = np.maximum.accumulate(np.maximum(reach, floor), axis=1)
    start = np.concatenate([floor, end[:, :-1]], axis=1)
    step = _STEP * np.take_along_axis(scale, order, axis=1)
    count = np.ceil((end - start) / step).astype(np.int64).ravel()
    segment = np.repeat(np.arange(count.size), count)
    width = ((end - start).ravel() / np.maximum(count, 1))[segment]
    position = np.arange(len(segment)) - (count.cumsum() - count)[segment]
    return segment // scale.shape[1], start.ravel()[segment] + position * width, width
