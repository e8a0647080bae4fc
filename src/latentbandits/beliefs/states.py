"""Distributions over latent states, kept as unnormalised log weights `(n_sessions, n_states)`."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray


def probabilities(log_weights: FloatArray) -> FloatArray:
    """P(s) from unnormalised log weights, safe at any magnitude.

    >>> probabilities(np.array([[-1e6, -1e6]]))
    array([[0.5, 0.5]])
    """
    # The ufuncs' own reductions: for a session alone half the time of the methods max and sum.
    weights = log_weights - np.maximum.reduce(log_weights, axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    return weights


def log_total(log_weights: FloatArray) -> FloatArray:
    """Log of the sum of the weights: a session's log evidence, `(n_sessions,)`.

    >>> log_total(np.log(np.array([[0.5, 0.25]]))).round(6)
    array([-0.287682])
    """
    top = log_weights.max(axis=-1)
    total: FloatArray = top + np.log(np.exp(log_weights - top[:, None]).sum(axis=-1))
    return total


def move(log_weights: FloatArray, transition: FloatArray | None) -> FloatArray:
    """Log weights of the next round's state: log sum_s exp(log_weights(s)) T(s, s').

    The predict step of a filter, after its condition step; None is a state that stands still.

    >>> np.exp(move(np.log([[0.5, 0.5]]), np.array([[0.9, 0.1], [0.3, 0.7]])))
    array([[0.6, 0.4]])
    """
    if transition is None:
        return log_weights
    top = log_weights.max(axis=-1, keepdims=True)
    weights = np.exp(log_weights - top) @ transition
    with np.errstate(divide="ignore"):  # a state that cannot be reached has log weight -inf
        moved: FloatArray = np.log(weights, out=weights)
    moved += top
    return moved


def sample(log_weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """One state per session: `(n_sessions,)`.

    The first of exponential clocks of rates w(s) to ring is s with probability w(s) / sum(w), and
    that is the largest of log w(s) - log E(s): exact, without normalising.
    """
    clocks = rng.standard_exponential(log_weights.shape)
    np.log(clocks, out=clocks)
    state: IntArray = np.subtract(log_weights, clocks, out=clocks).argmax(axis=-1)
    return state


def sample_many(log_weights: FloatArray, n_draws: int, rng: np.random.Generator) -> IntArray:
    """`n_draws` states per session, `(n_sessions, n_draws)`, sorted: systematic sampling.

    Each draw has the marginal P(s), and s is drawn n_draws * P(s) times to within one.
    """
    return systematic(log_weights, n_draws, rng.random((len(log_weights), 1)))


def systematic(log_weights: FloatArray, n_draws: int, uniform: FloatArray | float) -> IntArray:
    """Return `n_draws` states per session, sorted, from one number in [0, 1) per session.

    >>> systematic(np.log([[0.5, 0.25, 0.25]]), 4, 0.5)
    array([[0, 0, 1, 2]])
    """
    upper = np.minimum(n_draws * probabilities(log_weights).cumsum(axis=-1), n_draws)
    upper[:, -1] = n_draws  # whatever the rounding of the sum
    below = np.ceil(upper - uniform).astype(np.int64)  # draws of states up to s
    times = np.diff(below, axis=-1, prepend=0)
    states = np.broadcast_to(np.arange(upper.shape[1]), upper.shape)
    return np.repeat(states.ravel(), times.ravel()).reshape(-1, n_draws)
