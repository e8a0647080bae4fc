"""Fewer weighted hypotheses instead of many, without bias."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray


def thin(log_weights: FloatArray, n_kept: int, uniform: FloatArray) -> tuple[IntArray, FloatArray]:
    """`n_kept` of each row's hypotheses and their log weights, both `(n_rows, n_kept)`.

    Fearnhead & Clifford (2003): with c such that sum_i min(w_i / c, 1) = n_kept, weights above c
    stay as they are and the others survive, by systematic sampling, with probability w_i / c and
    then have weight c. Every expected weight is what it was, none is kept twice, and rows with
    no more than `n_kept` positive weights stay as they are.
    `uniform` is one number in [0, 1) per row.

    >>> index, log_kept = thin(np.log([[0.6, 0.3, 0.1]]), 2, np.array([0.5]))
    >>> index, np.exp(log_kept)
    (array([[0, 1]]), array([[0.6, 0.4]]))
    """
    order = np.argsort(-log_weights, axis=1, kind="stable")
    log_sorted = np.take_along_axis(log_weights, order, axis=1)
    top = np.where(np.isneginf(log_sorted[:, :1]), 0.0, log_sorted[:, :1])
    weights = np.exp(log_sorted - top)
    tail = weights[:, ::-1].cumsum(axis=1)[:, ::-1][:, :n_kept]  # what is left if k are kept
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
