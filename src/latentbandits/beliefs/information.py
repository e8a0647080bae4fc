"""Information-directed sampling: what an action costs, against what it tells of the best one.

From scenarios of the mean rewards (the states of a known model, or draws from a posterior):
D(a) is the expected regret of action a, and v(a) the variance over the best action a* of
E[mu(a) | a*] (Russo & Van Roy 2014, the variance-based information ratio).
"""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray

_ROUNDING = 1e-12  # a regret below this share of the rewards is a difference of equal sums
_LEAST_INFORMATION = 1e-300


def regret_and_information(
    rewards: FloatArray, weights: FloatArray, best: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """D and v, both `(n, n_actions)`.

    `rewards` is `(n, m, n_actions)`, finite; `weights` `(n, m)` sums to one over the scenarios;
    `best` marks each scenario's best eligible actions, and a tie splits its scenario's weight.

    >>> rewards = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> regret_and_information(rewards, np.array([[0.5, 0.5]]), rewards == 1)
    (array([[0.5, 0.5]]), array([[0.25, 0.25]]))
    """
    mean = (weights[:, None, :] @ rewards)[:, 0]
    top = np.where(best, rewards, -np.inf).max(axis=2)
    regret = (weights * top).sum(axis=1, keepdims=True) - mean
    membership = weights[:, :, None] * best / best.sum(axis=2, keepdims=True)
    chance = membership.sum(axis=1)  # P(a*)
    given = membership.swapaxes(1, 2) @ rewards  # P(a*) E[mu(a) | a*]
    given -= chance[:, :, None] * mean[:, None, :]
    given *= given
    information = (1 / np.maximum(chance, _LEAST_INFORMATION))[:, None, :] @ given
    information = information[:, 0]
    regret[regret < _ROUNDING * np.abs(mean).max(axis=1, keepdims=True)] = 0.0
    return regret, information


def minimal_ratio_mixture(
    regret: FloatArray, information: FloatArray, eligible: BoolArray | None
) -> FloatArray:
    """The distribution over actions, `(n, n_actions)`, that minimises D^2 / v.

    A minimiser exists on two actions. For the pair (a, b) played with chances q and 1 - q the
    ratio is (D_b + q (D_a - D_b))^2 / (v_b + q (v_a - v_b)), convex in q, and stationary at
    q = D_b / (D_a - D_b) - 2 v_b / (v_a - v_b). Pairs that tie share equally.

    >>> minimal_ratio_mixture(np.array([[0.0, 0.5]]), np.array([[0.1, 0.2]]), None)
    array([[1., 0.]])
    """
    n_actions = regret.shape[1]
    a, b = np.triu_indices(n_actions)  # the diagonal is an action alone
    regret_a, regret_b = regret[:, a], regret[:, b]
    information_a, information_b = information[:, a], information[:, b]
    with np.errstate(divide="ignore", invalid="ignore"):
        q = regret_b / (regret_a - regret_b)
        q -= 2 * information_b / (information_a - information_b)
    q = np.clip(np.nan_to_num(q), 0.0, 1.0)
    ratio = _ratio(q * regret_a + (1 - q) * regret_b, q * information_a + (1 - q) * information_b)
    alone = _ratio(regret, information)
    alone_a, alone_b = alone[:, a], alone[:, b]
    better = np.minimum(alone_a, alone_b) <= ratio  # then the minimum is at an end of [0, 1]
    q = np.where(better, 0.5 * (1 + np.sign(alone_b - alone_a)), q)
    ratio = np.where(better, np.minimum(alone_a, alone_b), ratio)
    if eligible is not None:
        ratio[~(eligible[:, a] & eligible[:, b])] = np.inf
    ties = ratio == ratio.min(axis=1, keepdims=True)
    share = ties / ties.sum(axis=1, keepdims=True)
    one_hot = np.eye(n_actions)
    mixture: FloatArray = (share * q) @ one_hot[a] + (share * (1 - q)) @ one_hot[b]
    return mixture


def _ratio(regret: FloatArray, information: FloatArray) -> FloatArray:
    """D^2 / v: zero where the regret is, however little is learned; never 0 / 0."""
    ratio: FloatArray = regret**2 / np.maximum(information, _LEAST_INFORMATION)
    return ratio
