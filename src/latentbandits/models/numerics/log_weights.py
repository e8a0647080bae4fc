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


# Resampling of weighted hypotheses without bias.


def systematic(weights: FloatArray, n_draws: int, uniform: FloatArray | float) -> IntArray:
    """Draw `n_draws` indices of each row of `weights` (k, m), sorted: `(k, n_draws)`.

    Index i is drawn n_draws * w_i / sum(w) times to within one, and that often on average.
    `uniform` is a number in [0, 1) per row, (k,), or one for all.

    >>> systematic(np.array([[0.5, 0.25, 0.25]]), 4, np.array([0.5]))
    array([[0, 0, 1, 2]])
    """
    upper = weights.cumsum(axis=1)
    upper *= n_draws / upper[:, -1:]
    offset = np.reshape(uniform, (-1, 1))
    below = np.ceil(upper - offset).astype(np.int64)  # number of draws with an index up to this one
    below[:, -1] = n_draws  # exact despite rounding of the sum
    np.minimum(below, n_draws, out=below)
    times = np.diff(below, axis=1, prepend=0)
    index = np.broadcast_to(np.arange(weights.shape[1]), weights.shape)
    return np.repeat(index.ravel(), times.ravel()).reshape(-1, n_draws)


def thin(log_weights: FloatArray, n_kept: int, uniform: FloatArray) -> tuple[IntArray, FloatArray]:
    """Keep `n_kept` hypotheses of each row: their indices and log weights, both `(k, n_kept)`.

    Optimal resampling of Fearnhead & Clifford (2003). With c such that sum_i min(w_i / c, 1) =
    n_kept, weights above c are kept unchanged. The others survive with probability w_i / c, by
    systematic sampling, and then have weight c. Every weight keeps its expectation, none is kept
    twice, and a row with at most `n_kept` positive weights keeps them all.
    `log_weights` is (k, m); `uniform` (k,) is one number in [0, 1) per row.

    >>> index, log_kept = thin(np.log([[0.6, 0.3, 0.1]]), 2, np.array([0.5]))
    >>> index, np.exp(log_kept)
    (array([[0, 1]]), array([[0.6, 0.4]]))
    """
    order = np.argsort(-log_weights, axis=1, kind="stable")
    log_sorted = np.take_along_axis(log_weights, order, axis=1)
    top = np.where(np.isneginf(log_sorted[:, :1]), 0.0, log_sorted[:, :1])
    weights = np.exp(log_sorted - top)
    tail = weights[:, ::-1].cumsum(axis=1)[:, ::-1][:, :n_kept]  # remaining weight
    threshold = tail / (n_kept - np.arange(tail.shape[1]))
    n_sure = (weights[:, : tail.shape[1]] > threshold).sum(axis=1, keepdims=True)
    c = np.take_along_axis(threshold, np.minimum(n_sure, tail.shape[1] - 1), axis=1)
    place = np.arange(weights.shape[1])
    sure = place < n_sure
    chance = np.divide(weights, c, out=np.zeros_like(weights), where=(c > 0) & ~sure)
    survivors = np.ceil(chance.cumsum(axis=1) - uniform[:, None] - 1e-12)
    drawn = np.diff(survivors, axis=1, prepend=0.0) > 0
    chosen = np.argsort(~(sure | drawn), axis=1, kind="stable")[:, :n_kept]
    new = np.where(
        sure, log_sorted, np.where(drawn, np.log(np.where(c > 0, c, 1.0)) + top, -np.inf)
    )
    return np.take_along_axis(order, chosen, axis=1), np.take_along_axis(new, chosen, axis=1)
