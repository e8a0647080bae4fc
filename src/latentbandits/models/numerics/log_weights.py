"""Weights of hypotheses, kept as logarithms: sums, Bayes' rule and draws."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray


def log_sum(log_weights: FloatArray) -> FloatArray:
    """Return log sum exp over the last axis; -inf where every weight is zero.

    >>> log_sum(np.array([[np.log(0.5), np.log(0.25)], [-np.inf, -np.inf]])).round(6)
    array([-0.287682,      -inf])
    """
    top = log_weights.max(axis=-1, keepdims=True)
    np.copyto(top, 0.0, where=np.isneginf(top))
    with np.errstate(divide="ignore"):
        total: FloatArray = np.log(np.exp(log_weights - top).sum(axis=-1))
    total += top[..., 0]
    return total


def normalise(log_weights: FloatArray, otherwise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log sum exp over the last axis, and the log weights that sum to one.

    Where every weight is zero, the normalised log weights are those of `otherwise`.

    >>> total, log_weights = normalise(np.log([0.1, 0.3]), np.log([0.5, 0.5]))
    >>> round(float(total), 6), np.exp(log_weights)
    (-0.916291, array([0.25, 0.75]))
    """
    total = log_sum(log_weights)
    impossible = np.isneginf(total)
    if not impossible.any():
        return total, log_weights - total[..., None]
    shift = np.where(impossible, 0.0, total)[..., None]
    return total, np.where(impossible[..., None], otherwise, log_weights - shift)


def sample(log_weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw an index of the last axis with probability proportional to its weight.

    Gumbel-max sampling, with -log E for a standard exponential E as the Gumbel variable: exact
    at any magnitude, without normalising.
    """
    gumbel = rng.standard_exponential(log_weights.shape)
    np.log(gumbel, out=gumbel)
    drawn: IntArray = np.subtract(log_weights, gumbel, out=gumbel).argmax(axis=-1)
    return drawn
