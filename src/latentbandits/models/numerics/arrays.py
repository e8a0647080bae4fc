"""Arrays of many sessions: work in blocks, weights kept as logarithms, and trees of arrays.

Blocks are as large as the processor's cache allows; new arrays of megabytes cost page faults as
well. Weights of hypotheses have sums, Bayes' rule
and draws. Trees are nested tuples of arrays, each with sessions first, as in a belief.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.checks import BoolArray, FloatArray, IntArray

_BLOCK_NUMBERS = 2**16  # float64 (512 kB); sizes of half or twice this were not faster


def blocks(n_sessions: int, numbers_per_session: int) -> Iterator[slice]:
    """Yield slices that cover all sessions, for arrays of `numbers_per_session` entries each.

    >>> list(blocks(5, 2**15))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    size = max(1, _BLOCK_NUMBERS // numbers_per_session)
    for start in range(0, n_sessions, size):
        yield slice(start, start + size)


# Rows of a table for every session, or of one table for all.


def rows(tables: FloatArray, index: IntArray) -> FloatArray:
    """Return the rows `index` (n, ...) of `tables` (1 or n, n_rows, width): `(n, ..., width)`.

    The result is tables[session, index]; `take` is several times faster. A row may have more than
    one axis.

    >>> rows(np.array([[[1.0, 2.0], [3.0, 4.0]]]), np.array([1, 0, 1]))
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])
    """
    if len(tables) == 1:
        table: FloatArray = tables[0]
        return table.take(index, axis=0)
    n_tables, n_rows, *width = tables.shape
    index = (index.T + n_rows * np.arange(n_tables)).T
    return tables.reshape(-1, *width).take(index, axis=0)


# The log density of a normal distribution.

_LOG_2PI = math.log(2 * math.pi)


def log_normal_density(residual: FloatArray, variance: FloatArray | float) -> FloatArray:
    """Return log N(residual; 0, variance), elementwise.

    >>> float(log_normal_density(np.array(0.0), 1.0).round(6))
    -0.918939
    """
    density: FloatArray = residual * residual
    density /= variance
    density += np.log(variance) + _LOG_2PI
    density *= -0.5
    return density


def shares_best(rewards: FloatArray, eligible: BoolArray | None) -> FloatArray:
    """Return the share of each action in the best eligible ones: 1, or less where several tie.

    `rewards` is (n, m, n_actions) and `eligible` (n, n_actions).

    >>> shares_best(np.array([[[1.0, 3.0, 3.0]]]), None)
    array([[[0. , 0.5, 0.5]]])
    """
    if eligible is not None:
        rewards = np.where(eligible[:, None], rewards, -np.inf)
    best = rewards == rewards.max(axis=2, keepdims=True)
    shares: FloatArray = best / best.sum(axis=2, keepdims=True)
    return shares


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

    Where every weight is zero, the normalised log weights are taken from `otherwise`.

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

    Index i is drawn n_draws * w_i / sum(w) times on average, and never differs from it by more than
    one. `uniform` is a number in [0, 1) per row, (k,), or one for all.

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


def map_leaves(function: Callable[..., Any], *trees: Any) -> Any:
    """Apply `function` to every array of `trees`, which have the same structure.

    >>> map_leaves(lambda array: array + 1, (1, (2, 3)))
    (2, (3, 4))
    """
    first = trees[0]
    if not isinstance(first, tuple):
        return None if first is None else function(*trees)
    branches = [map_leaves(function, *parts) for parts in zip(*trees, strict=True)]
    return type(first)(*branches) if hasattr(first, "_fields") else tuple(branches)


def leaves(tree: Any) -> list[NDArray[Any]]:
    """Return the arrays of a tree, in order.

    >>> leaves((1, (2, None)))
    [array(1), array(2)]
    """
    if isinstance(tree, tuple):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [] if tree is None else [np.asarray(tree)]


def concatenate(trees: Sequence[Any]) -> Any:
    """Return the beliefs of several sessions as one.

    >>> concatenate([(np.ones(1),), (np.zeros(1),)])
    (array([1., 0.]),)
    """
    if len(trees) == 1:
        return trees[0]
    return map_leaves(lambda *parts: np.concatenate(parts), *trees)


def separate(tree: Any, n: int) -> list[Any]:
    """Return the belief of each of `n` sessions as a copy, which does not keep the others alive.

    >>> separate((np.array([1.0, 0.0]),), 2)
    [(array([1.]),), (array([0.]),)]
    """
    if n == 1:
        return [tree]
    if not isinstance(tree, tuple):
        return [None if tree is None else tree[i : i + 1].copy() for i in range(n)]
    branches = zip(*[separate(branch, n) for branch in tree], strict=True)
    return [type(tree)(*parts) if hasattr(tree, "_fields") else parts for parts in branches]


def json_bytes(content: Any) -> NDArray[np.uint8]:
    """Return JSON as an array of bytes, as artefacts keep texts."""
    return np.frombuffer(json.dumps(content, ensure_ascii=False).encode(), np.uint8)


# Keys: random numbers that are a function of data.

Keys = NDArray[np.uint64]


def mix(values: Keys) -> Keys:
    """Apply the finaliser of splitmix64 (Steele, Lea & Flood 2014): all bits depend on all."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
