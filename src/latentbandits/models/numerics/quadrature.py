"""The probability that each of several independent normal variables is the largest.

It is the propensity of Thompson sampling for independent actions. Rewards that share a parameter
vector have no such integral; their draws are counted, the decision included, so that a chosen
action never has propensity zero.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import blocks

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
