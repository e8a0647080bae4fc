"""Learn the transition matrix of the latent state from frequencies of reward pairs (SL-EC).

Russo, Metelli & Restelli (2024): rewards given the state are known, the transition matrix P is
not. For two rounds in a row, freq(a, r, a', r') = sum_{s, s'} p(r | a, s) p(r' | a', s') Q(s, s')
with Q(s, s') = pi(s) P(s, s'): linear in Q, so non-negative least squares give Q, and its rows,
normalised, are P. Sequences may be short, and there is no local optimum. Baum-Welch
(`latentbandits.learning.transitions.fit_transition`) has local optima, but is statistically more
efficient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentbandits.learning.transitions import TransitionFit, UserSequence, check_sequence
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.laws import BINARY
from latentbandits.models.protocol import KnownModel, with_defaults


def fit_transition_pairs(
    model: KnownModel, sequences: Sequence[UserSequence], *, n_bins: int = 8
) -> TransitionFit:
    """Estimate the transition matrix by least squares on pair frequencies, after SL-EC.

    `model` has a fixed list of actions and known rewards given the state: 0 or 1 (`BernoulliArms`),
    or Gaussian with the model's noise, which are sorted into `n_bins` bins of equal frequency.
    Each pair of actions is weighted by its frequency.

    >>> from latentbandits import GaussianArms
    >>> from latentbandits.learning.transitions import UserSequence
    >>> model = GaussianArms([[1.0], [0.0]], noise=0.1)
    >>> moves = np.random.default_rng(0).random(2000) < 0.3  # to the other state
    >>> rewards = 1.0 - np.cumsum(moves) % 2 + 0.1 * np.random.default_rng(1).normal(size=2000)
    >>> fit_transition_pairs(model, [UserSequence([0] * 2000, rewards)]).transition.round(1)
    array([[0.7, 0.3],
           [0.3, 0.7]])
    """
    from scipy.optimize import nnls

    if not sequences:
        raise ValueError("give at least one user's sequence to learn a transition from")
    if model.n_actions is None or model.n_sessions is not None:
        raise ValueError(
            "SL-EC needs a model with a fixed list of actions that all users share; use "
            "fit_transition for features"
        )
    checks.positive_count("n_bins", n_bins)
    rounds = [check_sequence(model, i, user) for i, user in enumerate(sequences)]
    bins, emission = _bins(model, np.concatenate([r for _, r in rounds]), n_bins)
    system, target = [], []
    for (a, b), table in _pair_counts(rounds, bins, model.n_actions, emission.shape[1]).items():
        total = table.sum()
        weight = np.sqrt(total)
        system.append(weight * np.kron(emission[a], emission[b]))
        target.append(weight * (table / total).ravel())
    if not system:
        raise ValueError("no user has two rounds in a row: SL-EC learns from pairs of rounds")
    n_states = model.n_states
    joint = nnls(np.concatenate(system), np.concatenate(target))[0].reshape(n_states, n_states)
    visits = joint.sum(axis=1, keepdims=True)
    uniform = np.full((n_states, n_states), 1 / n_states)
    transition = np.divide(joint, visits, out=uniform, where=visits > 0)
    prior = visits[:, 0] / visits.sum() if visits.sum() > 0 else np.full(n_states, 1 / n_states)
    return TransitionFit(transition, prior, ())


def _bins(model: KnownModel, rewards: FloatArray, n_bins: int) -> tuple[FloatArray, FloatArray]:
    """Return the inner edges of bins, and p(bin | a, s) of shape `(K, n_bins, S)`."""
    means = model.expected_rewards(None)[0]  # (S, K)
    if with_defaults(model).support == BINARY:
        return np.array([0.5]), np.stack([1 - means.T, means.T], axis=1)
    from scipy.special import ndtr

    edges = np.unique(np.quantile(rewards, np.arange(1, n_bins) / n_bins))
    below = ndtr((edges[None, :, None] - means.T[:, None, :]) / model.noise)
    ends = np.zeros((len(below), 1, below.shape[2]))
    return edges, np.diff(np.concatenate([ends, below, ends + 1], axis=1), axis=1)


def _pair_counts(
    rounds: list[tuple[IntArray, FloatArray]], edges: FloatArray, n_actions: int, n_bins: int
) -> dict[tuple[int, int], FloatArray]:
    """Return how often each pair of bins followed each pair of actions."""
    tables: dict[tuple[int, int], FloatArray] = {}
    for actions, rewards in rounds:
        place = np.searchsorted(edges, rewards, side="left")
        for a, b, i, j in zip(actions[:-1], actions[1:], place[:-1], place[1:], strict=True):
            table = tables.setdefault((int(a), int(b)), np.zeros((n_bins, n_bins)))
            table[i, j] += 1
    return tables
