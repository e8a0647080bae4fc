"""Learn the transition matrix of the latent state by expectation-maximisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.markov import Markov, switching_matrix
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
    log_density, rounds = _emissions(model, sequences)
    n_states = model.n_states
    if start is None:
        rows = switching_matrix(n_states, 0.1)
    else:
        rows = checks.transition_matrix(start, n_states)
    prior = np.exp(model.log_state_prior).mean(axis=0)
    likelihoods: list[float] = []
    for step in range(max_steps):
        expected = expected_states(log_density, rounds, rows, prior)
        likelihoods.append(expected.log_likelihood)
        if step > 0 and likelihoods[-1] - likelihoods[-2] < tolerance * len(log_density):
            break
        visits = expected.moves.sum(axis=1, keepdims=True)
        rows = np.divide(expected.moves, visits, out=rows.copy(), where=visits > 0)
        prior = expected.first(rounds) / len(sequences)
        if progress is not None:
            progress(1)
    return TransitionFit(rows, prior, tuple(likelihoods))


class Rounds(NamedTuple):
    """The rows of users in their order, regrouped by round: rows of one round are adjacent.

    Users with more rounds come first, so that those with a next round are the first of a round.
    """

    place: IntArray  # (n_rows,): the row at each place of the new order
    edges: IntArray  # (n_rounds + 1,): where each round begins, and the end

    @classmethod
    def of_users(cls, starts: IntArray) -> Self:
        """Regroup the rows of users, whose rows begin at `starts` (n_users + 1,).

        >>> Rounds.of_users(np.array([0, 1, 3])).place  # one row of a user, two of another
        array([1, 0, 2])
        """
        lengths = np.diff(starts)
        order = np.argsort(-lengths, kind="stable")
        longest = int(lengths.max(initial=0))
        active = np.searchsorted(-lengths[order], -np.arange(longest), side="left")
        edges = np.append(0, np.cumsum(active))
        parts = [starts[order[:n]] + t for t, n in enumerate(active)]
        return cls(np.concatenate([np.zeros(0, np.int64), *parts]), edges)

    def each(self) -> list[slice]:
        """Return the places of each round's rows."""
        return [slice(low, high) for low, high in pairwise(self.edges.tolist())]

    def rows(self) -> list[IntArray]:
        """Return the rows of each round."""
        return [self.place[now] for now in self.each()]


class Expected(NamedTuple):
    """The E step of Baum-Welch: expectations given all rewards, over all users."""

    states: FloatArray  # (n_rows, n_states): P(s | the user's rewards), by round
    moves: FloatArray  # (n_states, n_states): number of moves from s to s'
    returns: FloatArray  # (n_states, n_states): the same across pauses
    log_predictive: FloatArray  # (n_rows,): log density of each row given the user's earlier ones

    @property
    def log_likelihood(self) -> float:
        return float(self.log_predictive.sum())

    def first(self, rounds: Rounds) -> FloatArray:
        """Return the expected number of users that begin in each state."""
        total: FloatArray = self.states[: rounds.edges[1]].sum(axis=0)
        return total


class Pauses(NamedTuple):
    """The rows that come after a pause of their user, and how the state moves across it."""

    after: BoolArray  # (n_rows,), in the order of `Rounds`
    returning: FloatArray  # (n_states, n_states)


def expected_states(
    log_density: FloatArray,
    rounds: Rounds,
    transition: FloatArray,
    prior: FloatArray,
    pauses: Pauses | None = None,
) -> Expected:
    """Return the expected states and moves of all users: forward and backward messages.

    `log_density` is log p(r | s), `(n_rows, n_states)`, in the order of `rounds`. The weights
    `transition` and `prior` need not sum to one. Before a row after a pause the state moves by
    `transition`, as always, and then by the matrix of the pause.
    """
    if pauses is None:
        pauses = Pauses(np.zeros(len(log_density), np.bool_), transition)
    top = log_density.max(axis=1, keepdims=True)
    density = np.exp(log_density - top)
    forward, scale = np.empty_like(density), np.empty((len(density), 1))
    predicted = prior[None]
    for now in rounds.each():
        predicted = predicted[: now.stop - now.start]
        if now.start > 0:
            after = pauses.after[now]
            predicted[after] = predicted[after] @ pauses.returning
        message = predicted * density[now]
        scale[now] = message.sum(axis=1, keepdims=True)
        forward[now] = message / scale[now]
        predicted = forward[now] @ transition
    states, moves, returns = forward.copy(), np.zeros_like(transition), np.zeros_like(transition)
    ahead, later = np.zeros((0, len(transition))), slice(0, 0)
    for now in reversed(rounds.each()):
        n = len(ahead)  # users with a next round
        after = pauses.after[later]
        returns += (forward[now][:n][after] @ transition).T @ ahead[after]
        ahead[after] = ahead[after] @ pauses.returning.T
        moves += forward[now][:n].T @ ahead
        backward = np.ones((now.stop - now.start, len(transition)))
        backward[:n] = ahead @ transition.T
        states[now] *= backward
        ahead, later = density[now] * backward / scale[now], now
    log_predictive = (np.log(scale) + top)[:, 0]
    return Expected(states, transition * moves, pauses.returning * returns, log_predictive)


def _emissions(model: KnownModel, sequences: Sequence[UserSequence]) -> tuple[FloatArray, Rounds]:
    """Return log p(r | s) of every row of all users, and its order."""
    if model.n_sessions is not None:
        raise ValueError("give a model that all users share, not one instance per session")
    densities = []
    for i, user in enumerate(sequences):
        actions, rewards = check_sequence(model, i, user)
        context = model.check_context(user.context, len(actions))
        densities.append(model.log_likelihood(context, actions, rewards))
    rounds = Rounds.of_users(np.cumsum([0, *(len(density) for density in densities)]))
    return np.concatenate(densities)[rounds.place], rounds


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
