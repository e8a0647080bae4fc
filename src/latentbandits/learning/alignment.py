"""Match the states of two fits by their mean rewards, because labels of states are arbitrary."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray


def align(
    rewards: FloatArray, reference: FloatArray, weights: FloatArray | None = None
) -> IntArray:
    """Return the state of `rewards` (n_states, n_actions) that matches each state of `reference`.

    The assignment has the least total squared distance; `weights` are the weights of actions.

    >>> align(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.9, 0.1], [0.1, 0.9]]))
    array([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    scale = np.ones(rewards.shape[1]) if weights is None else np.sqrt(weights)
    a, b = reference * scale, rewards * scale
    distance = (a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1)
    state: IntArray = linear_sum_assignment(distance)[1]
    return state
