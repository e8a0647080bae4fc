"""Compute expectations over one more reward: the state belief after each candidate action.

The knowledge gradient of an action is E[max_v E_v after its reward] - max_v E_v, the expected gain
of the best value; its information is the expected fall of the belief's entropy. Expectations over
the reward are by Gauss-Hermite quadrature in every state (Gaussian rewards), or exact (0 and 1).
`mKG` uses it over all actions, `PolicyReuse` over the actions that are best in some state. This is
the first step of `planning.py` for a model whose parameters are known, without copies of beliefs.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray
from latentbandits.models.numerics.blocks import blocks

N_NODES = 9


class Lookahead(NamedTuple):
    """Expectations over the reward of each candidate action, each `(n, n_candidates)`."""

    best: FloatArray  # E[max_v E_v] after the reward
    entropy: FloatArray  # E[entropy of the belief] after the reward


def look_ahead(
    weights: FloatArray,
    observed: FloatArray,
    values: FloatArray,
    noise: float | None,
    n_nodes: int = N_NODES,
) -> Lookahead:
    """Return expectations of the belief after one reward of each candidate action.

    `weights` `(n, S)` is P(s). `observed` `(1 or n, S, J)` has the mean reward of each of J
    candidates in every state, with Gaussian noise of deviation `noise`; None: rewards are 0 or 1.
    `values` `(1 or n, S, V)` are the values whose expectations are compared: E_v = sum_s P(s)
    values[s, v].

    >>> means = np.array([[[1.0, 0.5], [0.0, 0.5]]])  # the second one is uninformative
    >>> after = look_ahead(np.array([[0.5, 0.5]]), means, means, noise=0.1)
    >>> (after.best - 0.5).round(3), after.entropy.round(3)
    (array([[0.25, 0.  ]]), array([[0.   , 0.693]]))
    """
    n, n_states = weights.shape
    n_candidates = observed.shape[2]
    best, entropy = np.empty((n, n_candidates)), np.empty((n, n_candidates))
    outcomes = n_states * n_nodes if noise is not None else 2
    width = outcomes * max(n_states, values.shape[2])  # array entries per candidate and session
    for block in blocks(n, n_candidates * width):
        means = observed if len(observed) == 1 else observed[block]
        stake = values if len(values) == 1 else values[block]
        for part in blocks(n_candidates, len(weights[block]) * width):
            chance, posterior = posteriors(weights[block], means[:, :, part], noise, n_nodes)
            after = posterior @ stake[:, None]  # (n, J, nodes, V)
            best[block, part] = (chance * after.max(axis=3)).sum(axis=2)
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = np.where(posterior > 0, posterior * np.log(posterior), 0.0)
            entropy[block, part] = -(chance * terms.sum(axis=3)).sum(axis=2)
    return Lookahead(best, entropy)


def knowledge_gradient(
    weights: FloatArray, means: FloatArray, noise: float | None, kappa: float | FloatArray
) -> FloatArray:
    """Return E_j + kappa (E[max_i E_i after j's reward] - max_i E_i), `(n, J)`, for J actions.

    `means` `(1 or n, S, J)` has their mean reward in every state; `kappa` is the number of rounds
    in which the reward's information is used, or `(n, 1)` of them. `noise` as in `look_ahead`.

    >>> means = np.array([[[0.9, 0.5], [0.0, 0.5]]])
    >>> knowledge_gradient(np.array([[0.5, 0.5]]), means, 0.1, kappa=9.0).round(2)
    array([[2.25, 0.5 ]])
    """
    expected = (weights[:, None] @ means)[:, 0]
    after = look_ahead(weights, means, means, noise).best
    score: FloatArray = expected + kappa * (after - expected.max(axis=1, keepdims=True))
    return score


def posteriors(
    weights: FloatArray, observed: FloatArray, noise: float | None, n_nodes: int = N_NODES
) -> tuple[FloatArray, FloatArray]:
    """Return the nodes of each candidate's reward: probability `(n, J, m)`, belief `(n, J, m, S)`.

    >>> chance, belief = posteriors(np.array([[0.2, 0.8]]), np.array([[[0.9], [0.4]]]), None)
    >>> chance[0, 0], belief[0, 0]
    (array([0.5, 0.5]), array([[0.04, 0.96],
           [0.36, 0.64]]))
    """
    n, n_states = weights.shape
    means = np.broadcast_to(observed, (n, n_states, observed.shape[2])).swapaxes(1, 2)  # (n, J, S)
    if noise is None:
        likelihood = np.stack([1 - means, means], axis=2)  # (n, J, 2, S)
        joint = weights[:, None, None, :] * likelihood
        chance = joint.sum(axis=3)
        posterior = joint / np.where(chance > 0, chance, 1.0)[..., None]
        return chance, posterior
    nodes, node_weights = hermite(n_nodes)
    rewards = (means[..., None] + noise * nodes).reshape(n, means.shape[1], -1)  # (n, J, S m)
    chance = np.repeat(weights, n_nodes, axis=1) * np.tile(node_weights, n_states)
    z = (rewards[..., None] - means[:, :, None, :]) / noise
    log_joint = -0.5 * z * z
    with np.errstate(divide="ignore"):
        log_joint += np.log(weights)[:, None, None, :]
    log_joint -= log_joint.max(axis=3, keepdims=True)
    posterior = np.exp(log_joint, out=log_joint)
    posterior /= posterior.sum(axis=3, keepdims=True)
    return np.broadcast_to(chance[:, None], rewards.shape), posterior


@cache
def hermite(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights for the expectation of a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()
