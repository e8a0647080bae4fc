"""A mixture of conjugate arms whose state moves between a user's rows, by variational Bayes.

It is the mixture of `mixture`, but each row has its own state: the first is drawn from pi, and each
later one from the previous state's row of the transition matrix P (Beal 2003, chapter 3). The rows
of P have a sticky Dirichlet prior. Before a row that comes after a pause, the state moves once
more, by a second matrix with the same prior. With gamma[t, s] the probability of state s in row t
given all rewards of the user,

    log density of row t in state s = t(r_t) . E[eta(theta[s, a_t])]
    phi[s, a] = phi0[a] + sum_t gamma[t, s] t(r_t) over the rows of action a
    moves[s, s'] = prior[s, s'] + expected number of moves from s to s'
    ELBO = sum_u log normaliser_u - KL(q(theta)) - KL(q(pi)) - KL(q(P))

A pass is a fold over users, like those of the mixture; all engines keep a user's rows in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.learner import FittedArms, observed_less
from latentbandits.learning.arms.mixture import Mixture, Problem
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.transitions import Expected, Pauses, Rounds, expected_states
from latentbandits.learning.user_hash import Keys
from latentbandits.models.arms import dirichlet
from latentbandits.models.arms.conjugate import Learnable
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.markov import Markov, switching_matrix

MOVING, WORTH = 0.1, 10.0
"""The sticky prior of a state's row of P: its probability of moving, and its worth in moves."""

TOLERANCE = 1e-2
"""ELBO gain of a pass, in nats, below which the ascent stops."""

MOST_USERS = 5_000
"""The number of users, sampled by hash, whose scores estimate the errors of the means."""

_MAX_PASSES = 500


class Chain(NamedTuple):
    """q(theta), q(pi) and q(P) of one model."""

    mixture: Mixture  # R = 1
    moves: FloatArray  # (S, S): parameters of q(P)
    returns: FloatArray | None = None  # the same of the matrix of pauses, if there are any
    session_gap: float | None = None  # seconds between two rows that make a pause

    @classmethod
    def starting_at(
        cls, mixture: Mixture, moving: float = MOVING, session_gap: float | None = None
    ) -> Chain:
        """Return a chain with the states of a mixture, that moves with this probability."""
        n_states = mixture.shares.shape[1]
        rows = mixture.shares.sum() / n_states * switching_matrix(n_states, moving)
        prior = sticky_prior(n_states)
        return cls(mixture, rows + prior, None if session_gap is None else prior, session_gap)

    @property
    def transition(self) -> FloatArray:
        """E[P]."""
        return _mean(self.moves)

    @property
    def returning(self) -> FloatArray | None:
        """The mean of the matrix of pauses."""
        return None if self.returns is None else _mean(self.returns)


def _mean(counts: FloatArray) -> FloatArray:
    """Return the means of Dirichlet distributions, one for each row."""
    rows: FloatArray = counts / counts.sum(axis=1, keepdims=True)
    return rows


def sticky_prior(n_states: int) -> FloatArray:
    """Return the prior parameters of the rows of P."""
    return WORTH * np.maximum(switching_matrix(n_states, MOVING), 1e-3)


@dataclass(frozen=True, eq=False)
class OrderedRows:
    """The rows of some users, regrouped by round."""

    rounds: Rounds
    actions: IntArray  # (n_rows,), in the order of `rounds`, as all below
    statistics: FloatArray  # (n_rows, K)
    users: IntArray  # (n_rows,)
    keys: Keys  # (n_users,)
    n_actions: int
    returns: BoolArray | None = None  # (n_rows,): rows after a pause


@dataclass(frozen=True, eq=False)
class PrepareRows:
    """A callable that turns a bucket's log into its ordered rows."""

    family: Learnable
    session_gap: float | None = None

    def __call__(self, log: Log) -> OrderedRows:
        rounds, gap = Rounds.of_users(log.starts), self.session_gap
        rewards = self.family.outcomes(np.asarray(log.rewards), log.positions)
        return OrderedRows(
            rounds,
            log.actions[rounds.place],
            self.family.summed(rewards)[rounds.place],
            log.users[rounds.place],
            log.keys,
            log.n_actions,
            None if gap is None else log.after_pause(gap)[rounds.place],
        )


class Broadcast(NamedTuple):
    """The parameters that a pass needs."""

    coefficients: FloatArray  # (S, A, K): E[eta]
    prior: FloatArray  # (S,): exp E[log pi]
    transition: FloatArray  # (S, S): exp E[log P]
    returning: FloatArray | None = None  # (S, S): the same of the matrix of pauses


class Sums(NamedTuple):
    """The sums that a pass returns."""

    arms: vb.Sums
    moves: FloatArray  # (S, S): expected number of moves
    returns: FloatArray  # (S, S): the same across pauses


@dataclass(frozen=True, eq=False)
class MovingPass:
    """A pass of the ascent over a log: the E step."""

    prepare: PrepareRows

    def summarise(self, rows: OrderedRows, current: Broadcast) -> Sums:
        expected = _expected(rows, current)
        arms = vb.Sums(
            _by_action(rows, expected.states)[None],
            expected.first(rows.rounds)[None],
            np.array([expected.log_likelihood]),
        )
        return Sums(arms, expected.moves, expected.returns)


def _expected(rows: OrderedRows, current: Broadcast) -> Expected:
    density = row_density(rows, current.coefficients)
    pauses = None
    if rows.returns is not None and current.returning is not None:
        pauses = Pauses(rows.returns, current.returning)
    return expected_states(density, rows.rounds, current.transition, current.prior, pauses)


def row_density(rows: OrderedRows, coefficients: FloatArray) -> FloatArray:
    """Return E[log p] of every row in every state, without the base measure, `(n_rows, S)`."""
    density = np.zeros((len(rows.actions), len(coefficients)))
    for k, statistic in enumerate(rows.statistics.T):
        density += statistic[:, None] * coefficients[:, :, k].T[rows.actions]
    return density


def _by_action(rows: OrderedRows, states: FloatArray) -> FloatArray:
    """Return the statistics of rows, weighted by their states: `(S, A, K)`."""
    sums = [
        [np.bincount(rows.actions, weight * one, rows.n_actions) for one in rows.statistics.T]
        for weight in states.T
    ]
    return np.asarray(sums).swapaxes(1, 2)


class Moved(NamedTuple):
    """The result of an ascent, the sums of its last pass, and the ELBO after every pass."""

    chain: Chain
    sums: Sums
    elbos: tuple[float, ...]


def climb_moving(
    problem: Problem,
    start: Chain,
    *,
    tolerance: float = TOLERANCE,
    max_passes: int = _MAX_PASSES,
) -> Moved:
    """Repeat passes until the ELBO gains less than `tolerance`; it never falls."""
    family, chain = problem.family, start
    step = MovingPass(PrepareRows(family, start.session_gap))
    before = sticky_prior(len(start.moves))
    elbos: list[float] = []
    while True:
        sums = problem.engine.fold(step, _broadcast(family, chain))
        kl = dirichlet.divergence(chain.moves, before).sum()
        if chain.returns is not None:
            kl += dirichlet.divergence(chain.returns, before).sum()
        elbos.append(float(problem.elbo(chain.mixture, sums.arms)[0] - kl))
        slow = len(elbos) > 1 and elbos[-1] - elbos[-2] < tolerance
        if slow or len(elbos) == max_passes:
            return Moved(chain, sums, tuple(elbos))
        returns = None if chain.returns is None else before + sums.returns
        mixture = problem.step(chain.mixture, sums.arms)
        chain = Chain(mixture, before + sums.moves, returns, start.session_gap)


def _broadcast(family: Learnable, chain: Chain) -> Broadcast:
    mixture = chain.mixture
    return Broadcast(
        family.coefficients(mixture.phi, mixture.noise)[0],
        np.exp(dirichlet.expected_log(mixture.shares[0])),
        np.exp(dirichlet.expected_log(chain.moves)),
        None if chain.returns is None else np.exp(dirichlet.expected_log(chain.returns)),
    )


# Standard errors of the means.
#
# The information about the means is the sum over users of the outer products of their scores: the
# expected value, given all rewards of the user, of h[s, a] = sum of rewards - count x mean over the
# rows in state s (compare `fitted`). Information that unknown states take away is missing from it.


class Scoring(NamedTuple):
    """The parameters of the pass over scores."""

    current: Broadcast
    means: FloatArray  # (S, A), in the units of the statistics
    counting: FloatArray  # (K,)
    paying: FloatArray  # (K,)


@dataclass(frozen=True, eq=False)
class ScorePass:
    """A pass that sums the outer products of users' scores."""

    prepare: PrepareRows
    chosen: Keys | None

    def summarise(self, rows: OrderedRows, parameters: Scoring) -> FloatArray:
        n_users = len(rows.keys)
        expected = _expected(rows, parameters.current)
        cell = rows.users * rows.n_actions + rows.actions
        counts, sums = rows.statistics @ parameters.counting, rows.statistics @ parameters.paying
        size = n_users * rows.n_actions
        scores = np.asarray(
            [
                np.bincount(cell, weight * (sums - counts * mean[rows.actions]), size)
                for weight, mean in zip(expected.states.T, parameters.means, strict=True)
            ],
            np.float64,
        )
        by_user = scores.reshape(-1, n_users, rows.n_actions).swapaxes(0, 1).reshape(n_users, -1)
        if self.chosen is not None:
            by_user = by_user[np.isin(rows.keys, self.chosen)]
        return by_user.T @ by_user


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedMoving(FittedArms):
    """A fitted chain: arms with both parts of their uncertainty, and how the state moves."""

    chain: Chain
    n_paths: int = 0

    def model(self) -> Markov:  # type: ignore[override]
        shares, chain = self.mixture.state_prior()[0], self.chain
        return Markov(
            super().model(),
            chain.transition,
            self.n_paths,
            shares,
            chain.returning,
            chain.session_gap,
        )


def finish_moving(problem: Problem, moved: Moved, seed: int = 0) -> FittedMoving:
    """Measure the estimation errors of a climbed chain's means."""
    mixture = moved.chain.mixture
    family = problem.family.at_noise(mixture.noise[0])
    engine = problem.engine
    n_users = engine.n_users
    sampled = None if n_users <= MOST_USERS else engine.chosen_keys(MOST_USERS, seed)
    scoring = Scoring(
        _broadcast(problem.family, moved.chain),
        family.mean_statistic(mixture.phi[0]),
        *family.counts_and_sums,
    )
    prepare = PrepareRows(problem.family, moved.chain.session_gap)
    known = engine.fold(ScorePass(prepare, sampled), scoring)
    scale = max(1.0, n_users / MOST_USERS)

    def loss(labelled: FloatArray) -> FloatArray:
        n = labelled.size
        lost = np.zeros((n + len(labelled) - 1,) * 2)
        lost[:n, :n] = np.diag(labelled.ravel()) - scale * known
        return lost

    variance = observed_less(problem, mixture, moved.sums.arms, loss).variance
    elbo = moved.elbos[-1]
    return FittedMoving(problem.family, mixture, elbo, elbo, variance, chain=moved.chain)
