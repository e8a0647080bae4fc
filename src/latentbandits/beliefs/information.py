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
_LARGEST = np.finfo(np.float64).max


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
    membership = weights[:, :, None] * best
    if np.count_nonzero(best) > best.shape[0] * best.shape[1]:
        membership /= best.sum(axis=2, keepdims=True)
    chance = membership.sum(axis=1)  # P(a*)
    given = membership.swapaxes(1, 2) @ rewards  # P(a*) E[mu(a) | a*]
    mean = given.sum(axis=1)
    regret = np.einsum("naa->n", given)[:, None] - mean  # E[mu(a*)] - E[mu(a)]
    regret[regret < _ROUNDING * np.abs(mean).max(axis=1, keepdims=True)] = 0.0
    given -= chance[:, :, None] * mean[:, None, :]
    given *= given
    information = (1 / np.maximum(chance, _LEAST_INFORMATION))[:, None, :] @ given
    return regret, information[:, 0]


def minimal_ratio_mixture(
    regret: FloatArray, information: FloatArray, eligible: BoolArray | None
) -> FloatArray:
    """The distribution over actions, `(n, n_actions)`, that minimises D^2 / v.

    A minimiser exists on one or two actions. Mixtures of a and b lie on the line D = c + g v
    through (v_a, D_a) and (v_b, D_b), where the ratio is least at v* = c / g: there it is
    4 c g = 4 g^2 v*. If v* is not between v_a and v_b, one of the two alone is better.
    Minimisers that tie share equally.

    >>> minimal_ratio_mixture(np.array([[0.0, 0.5]]), np.array([[0.1, 0.2]]), None)
    array([[1., 0.]])
    """
    D, v = np.ascontiguousarray(regret.T), np.ascontiguousarray(information.T)  # sessions last
    a, b = np.triu_indices(len(D), 1)
    D_a, D_b, v_a, v_b = D[a], D[b], v[a], v[b]
    with np.errstate(all="ignore"):  # parallel points have no v* in between
        alone = np.minimum(D * D / np.maximum(v, _LEAST_INFORMATION), _LARGEST)
        g = (D_a - D_b) / (v_a - v_b)
        optimum = (D_b * v_a - D_a * v_b) / (D_a - D_b)  # v*, the same from a as from b
        together = np.where((optimum - v_a) * (optimum - v_b) < 0, 4 * g * g * optimum, np.inf)
    if eligible is not None:
        alone[~eligible.T] = np.inf
        together[~(eligible.T[a] & eligible.T[b])] = np.inf
    least = np.minimum(alone.min(axis=0), together.min(axis=0, initial=np.inf))
    mixture = (alone == least).astype(np.float64)
    pair, session = np.nonzero(together == least)
    share = (optimum - v_b)[pair, session] / (v_a - v_b)[pair, session]
    np.add.at(mixture, (a[pair], session), share)
    np.add.at(mixture, (b[pair], session), 1 - share)
    distribution: FloatArray = (mixture / mixture.sum(axis=0)).T
    return distribution
