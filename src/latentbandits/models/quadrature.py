"""The probability that each of several independent normal variables is the largest."""

from __future__ import annotations

import math

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray

_REACH = 7.5  # standard deviations: beyond them lies less than 1e-13
_NEGLIGIBLE = 1e-10  # a problem of this weight cannot move the weighted answer
_POINT = 1e-13
_KNOTS = np.linspace(-_REACH, _REACH, 11)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def probability_largest(
    mean: FloatArray,
    deviation: FloatArray,
    eligible: BoolArray | None = None,
    weights: FloatArray | None = None,
) -> FloatArray:
    """P(Y_a > Y_b for all b != a), Y_a ~ N(mean_a, deviation_a^2): `(n, m, k)` for inputs like it.

    One integral per variable: of its density times the product of the others' distribution
    functions, by Gauss-Legendre between knots that follow every variable's own scale, so that a
    narrow variable among wide ones is seen. Variables of deviation zero are points: the largest
    of them, or its ties in equal shares, wins where all others stay below it.
    `eligible` is `(n, k)`; problems whose `weights` (n, m) are negligible are answered uniformly.

    >>> probability_largest(np.zeros((1, 1, 4)), np.ones((1, 1, 4))).round(6)
    array([[[0.25, 0.25, 0.25, 0.25]]])
    """
    n, m, k = mean.shape
    mask = np.ones((n, k), np.bool_) if eligible is None else eligible
    result = np.repeat((mask / mask.sum(axis=1, keepdims=True))[:, None], m, axis=1)
    for i in range(n):
        candidates = np.flatnonzero(mask[i])
        for j in range(m):
            if weights is None or weights[i, j] > _NEGLIGIBLE:
                result[i, j, candidates] = _one_problem(
                    mean[i, j, candidates], deviation[i, j, candidates]
                )
    return result


def _one_problem(mean: FloatArray, deviation: FloatArray) -> FloatArray:
    from scipy.special import ndtr  # a tenth of a second that most imports need not spend

    result = np.zeros(len(mean))
    floor = (mean - _REACH * deviation).max()  # the largest is almost surely above this
    alive = mean + _REACH * deviation >= floor
    narrow = deviation <= _POINT * np.abs(mean).max()  # too narrow for a knot beside its mean
    points = alive & narrow
    wide = np.flatnonzero(alive & ~narrow)
    centre, scale = mean[wide], deviation[wide]
    if points.any():
        top = points & (mean == mean[points].max())
        floor = mean[points].max()
        result[top] = np.prod(ndtr((floor - centre) / scale)) / top.sum()
    if len(wide) == 0:
        return result
    knots = np.unique((centre[:, None] + scale[:, None] * _KNOTS).ravel())
    knots = np.concatenate([[floor], knots[knots > floor]])
    half = np.diff(knots) / 2
    x = (knots[:-1] + half)[:, None] + half[:, None] * _NODES
    z = (x.ravel()[:, None] - centre) / scale
    below = ndtr(z)
    density = np.exp(-0.5 * z * z) / (scale * math.sqrt(2 * math.pi))
    others = _products_of_others(below)
    result[wide] = (half[:, None] * _WEIGHTS).ravel() @ (density * others)
    return result


def _products_of_others(values: FloatArray) -> FloatArray:
    """Row-wise products that leave one column out, without dividing (a factor may be zero)."""
    products = np.ones_like(values)
    np.cumprod(values[:, :-1], axis=1, out=products[:, 1:])
    products[:, :-1] *= np.cumprod(values[:, :0:-1], axis=1)[:, ::-1]
    return products
