"""Learn the transition matrix of the latent state by expectation-maximisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.markov import Markov
from latentbandits.models.protocol import KnownModel


class UserSequence(NamedTuple):
    """One user's rounds in their order; `context` is None or `(n_rounds, n_actions, d)`."""

    actions: ArrayLike
    rewards: ArrayLike
    context: ArrayLike | None = None


@dataclass(frozen=True, eq=False)
class TransitionFit:
    """The result of expectation-maximisation, and the log likelihood after each step."""

    transition: FloatArray  # (n_states, n_states)
    state_prior: FloatArray  # (n_states,), of the first round
    log_likelihoods: tuple[float, ...]

    def markov(self, model: KnownModel, n_paths: int = 16) -> Markov:
        """Return `model` with the learned transition and first-state distribution."""
        return Markov(model, self.transition, n_paths, self.state_prior)


def fit_transition(
    model: KnownModel,
    sequences: Sequence[UserSequence],
    *,
    start: ArrayLike | None = None,
    max_steps: int = 200,
    tolerance: float = 1e-6,
    progress: Callable[[int], None] | None = None,
) -> TransitionFit:
    """Estimate the transition matrix by maximum likelihood; `model` gives rewards of each state.

    This is Baum-Welch with fixed emissions. `start` is the initial transition matrix; None: the
    state stays with probability 0.9. It stops when a step gains less than `tolerance` per round.

    >>> from latentbandits import GaussianArms
    >>> model = GaussianArms([[1.0], [0.0]], noise=0.1)
    >>> rewards = [1, 1, 1, 0, 0, 0, 1, 1, 1, 0]
    >>> fit_transition(model, [UserSequence([0] * 10, rewards)]).transition.round(2)
    array([[0.67, 0.33],
           [0.33, 0.67]])
    """
    if not sequences:
        raise ValueError("give at least one user's sequence to learn a transition from")
    log_density, present = _emissions(model, sequences)
    n_states = model.n_states
    if start is None:
        stay = 0.9 if n_states > 1 else 1.0
        away = (1 - stay) / max(n_states - 1, 1)
        rows = np.full((n_states, n_states), away)
        np.fill_diagonal(rows, stay)
    else:
        rows = checks.transition_matrix(start, n_states)
    prior = np.exp(model.log_state_prior).mean(axis=0)
    likelihoods: list[float] = []
    for step in range(max_steps):
        moves, first, log_likelihood = expected_moves(log_density, present, rows, prior)
        likelihoods.append(log_likelihood)
        if step > 0 and likelihoods[-1] - likelihoods[-2] < tolerance * present.sum():
            break
        visits = moves.sum(axis=1, keepdims=True)
        rows = np.divide(moves, visits, out=rows.copy(), where=visits > 0)
        prior = first / first.sum()
        if progress is not None:
            progress(1)
    return TransitionFit(rows, prior, tuple(likelihoods))


def expected_moves(
    log_density: FloatArray, present: BoolArray, transition: FloatArray, prior: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return the E step: expected counts of moves s to s' and of first states, log likelihood.

    `log_density` is log p(r | s), `(n_users, n_rounds, n_states)`; a user's rounds are `present`
    from the first without a gap. Forward and backward messages are computed for all users at once.
    """
    n_users, n_rounds, n_states = log_density.shape
    top = np.where(present[:, :, None], log_density, 0.0).max(axis=2, keepdims=True)
    density = np.where(present[:, :, None], np.exp(log_density - top), 1.0)
    forward = np.empty((n_users, n_rounds, n_states))
    scale = np.ones((n_users, n_rounds))
    predicted: FloatArray = np.broadcast_to(prior, (n_users, n_states))
    for t in range(n_rounds):
        message = predicted * density[:, t]
        total = message.sum(axis=1)
        scale[:, t] = np.where(present[:, t], total, 1.0)
        forward[:, t] = message / total[:, None]
        predicted = forward[:, t] @ transition
    moves = np.zeros((n_states, n_states))
    backward = np.ones((n_users, n_states))
    for t in range(n_rounds - 1, 0, -1):
        ahead = density[:, t] * backward / scale[:, t, None]
        joint = forward[:, t - 1, :, None] * transition * ahead[:, None, :]
        moves += joint[present[:, t]].sum(axis=0)
        backward = np.where(present[:, t, None], ahead @ transition.T, backward)
    first = forward[:, 0] * backward
    first /= first.sum(axis=1, keepdims=True)
    log_likelihood = float((np.log(scale) + np.where(present, top[:, :, 0], 0.0)).sum())
    return moves, first.sum(axis=0), log_likelihood


def _emissions(
    model: KnownModel, sequences: Sequence[UserSequence]
) -> tuple[FloatArray, BoolArray]:
    """Return log p(r | s) of every user's rounds, padded, and a mask of the real rounds."""
    if model.n_sessions is not None:
        raise ValueError("give a model that all users share, not one instance per session")
    densities = [_density(model, i, user) for i, user in enumerate(sequences)]
    longest = max(len(d) for d in densities)
    log_density = np.zeros((len(densities), longest, model.n_states))
    present = np.zeros((len(densities), longest), np.bool_)
    for i, density in enumerate(densities):
        log_density[i, : len(density)] = density
        present[i, : len(density)] = True
    return log_density, present


def _density(model: KnownModel, user: int, sequence: UserSequence) -> FloatArray:
    actions, rewards = check_sequence(model, user, sequence)
    context = model.check_context(sequence.context, len(actions))
    return model.log_likelihood(context, actions, rewards)


def check_sequence(
    model: KnownModel, user: int, sequence: UserSequence
) -> tuple[IntArray, FloatArray]:
    """Return a user's actions and rewards; ValueError if they are impossible under the model."""
    actions = np.asarray(sequence.actions, np.int64)
    rewards = checks.finite_array(f"rewards of user {user}", sequence.rewards, (1,))
    if actions.shape != rewards.shape:
        raise ValueError(
            f"user {user} has {actions.size} actions and {rewards.size} rewards: give one of "
            "each for every round"
        )
    context = model.check_context(sequence.context, len(actions))
    n_actions = model.n_actions if model.n_actions is not None else np.asarray(context).shape[1]
    if actions.min() < 0 or actions.max() >= n_actions:
        raise ValueError(f"user {user} has the action {actions.max()}; there are {n_actions}")
    model.check_reward(rewards)
    return actions, rewards
