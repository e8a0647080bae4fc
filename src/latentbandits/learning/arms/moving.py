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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.learner import (
    LARGE,
    LARGE_TOLERANCE,
    MOST_MEANS,
    STATES,
    FittedArms,
    Parameters,
    observed_less,
)
from latentbandits.learning.arms.mixture import Mixture, Problem, best_of
from latentbandits.learning.assess.heldout import MOST_ROUNDS, HeldOut, score
from latentbandits.learning.backends.backend import AnyLog, LogEngine, engine_of
from latentbandits.learning.learners import (
    Candidate,
    Learned,
    Learner,
    Selection,
    Split,
    States,
    clearly_better,
    try_states,
    vetoed,
)
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.transitions import Expected, Pauses, Rounds, expected_states
from latentbandits.learning.user_hash import Keys
from latentbandits.models.arms import dirichlet
from latentbandits.models.arms.conjugate import Learnable
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.markov import Markov, switching_matrix
from latentbandits.report.report import Estimate

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


def ascend_moving(
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


@dataclass(frozen=True, eq=False)
class ScorePass:
    """A pass that sums the outer products of users' scores."""

    prepare: PrepareRows
    chosen: Keys | None

    def summarise(self, rows: OrderedRows, parameters: Parameters) -> FloatArray:
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
    """Measure the estimation errors of a fitted chain's means."""
    mixture = moved.chain.mixture
    engine = problem.engine
    n_users = engine.n_users
    sampled = None if n_users <= MOST_USERS else engine.chosen_keys(MOST_USERS, seed)
    current = _broadcast(problem.family, moved.chain)
    prepare = PrepareRows(problem.family, moved.chain.session_gap)
    parameters = Parameters.of(problem.family, mixture, current)
    known = engine.fold(ScorePass(prepare, sampled), parameters)
    scale = max(1.0, n_users / MOST_USERS)

    def loss(labelled: FloatArray) -> FloatArray:
        n = labelled.size
        lost = np.zeros((n + len(labelled) - 1,) * 2)
        lost[:n, :n] = np.diag(labelled.ravel()) - scale * known
        return lost

    variance = observed_less(problem, mixture, moved.sums.arms, loss).variance
    elbo = moved.elbos[-1]
    return FittedMoving(problem.family, mixture, elbo, elbo, variance, chain=moved.chain)


# The learner.

TRIED = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Probabilities of a move in a round that the first, small test tries."""

SLOW = 0.01
"""Probability of a move at which states that stand still start to move."""

SEGMENT = 10
"""A user's rows are cut into segments of this length: clusters of these are the starts."""

CHOICE_USERS = 1_500
"""The number of users, sampled by hash, on which the number of states is chosen."""

UNCERTAIN = ((4, inf), (4, 100.0), (4, 10.0))
"""Paths per state, and variation of users within a state, that are tried beside known means."""

_UNCERTAIN_USERS = 300  # held-out users on which these are compared: they are slow
_CHOICE_TOLERANCE = 0.1  # ELBO gain of a pass, in nats, that ends the ascent of a candidate
_TRIAL = 10  # passes after which starts are compared


@dataclass(frozen=True, eq=False)
class MovingArms(Learner):
    """A learner of arms whose state moves; the errors of its means come from users' scores.

    With `n_paths=0` the means are taken as known, and a session learns its state only; else users
    vary around them with this `strength`. The ascent starts from clusters of segments, and also
    from states that stand `still`, because segments may be too short to tell states apart.
    """

    family: Learnable
    still: tuple[Mixture, ...] = ()
    n_paths: int = 0
    strength: float = inf
    session_gap: float | None = None

    def select(self, split: Split, states: States) -> Selection:
        """Choose the number of states by ELBO, then whether sessions learn the means as well."""
        kept, seed, progress = split.kept, split.seed, split.progress
        few = kept if kept.n_users <= CHOICE_USERS else engine_of(kept.sample(CHOICE_USERS, seed))
        problem = Problem.from_log(self.family, few)
        pieces = Problem.from_log(self.family, few.mapped(Segments(SEGMENT)))
        wanted = STATES[1:] if states is None else tuple(states)
        progress.start("choosing the number of states that move", len(wanted))
        rows = try_states(
            wanted, lambda n_states: self._try(problem, pieces, split, n_states), _elbo, progress
        )
        best = self.choose(rows)
        fitted = self._fitted(kept, best.fit, seed, _CHOICE_TOLERANCE)
        if few is not kept:  # more users may hold more states
            for row in sorted(rows, key=lambda one: one.n_states):
                if row.fit and row.n_states > best.n_states:
                    other = self._fitted(kept, row.fit, seed, _CHOICE_TOLERANCE)
                    if other.elbo <= fitted.elbo:
                        break
                    best, fitted = row, other
        learner, judged = self._settled(fitted, split.held_out)
        settled = replace(best, fit=fitted.chain)
        of_all = tuple(settled if row is best else row for row in rows)
        return Selection(learner, of_all, settled, learner._learned(kept, fitted), judged)

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """Return the candidate of highest ELBO that held-out evidence does not reject."""
        fitted = [row for row in rows if row.evidence is not None]
        if not fitted:
            raise LogError(rows[0].reason)
        return max((row for row in fitted if not vetoed(row, fitted)), key=_elbo)

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        """Learn from `log`, beginning with the chain of `chosen`."""
        log = engine_of(log)
        return self._learned(log, self._fitted(log, chosen.fit, seed))

    def settings(self) -> dict[str, Any]:
        return {"rewards": self.family.family_name, "method": "em", "paths": self.n_paths}

    def gain(self, log: Log) -> Estimate:
        """Return how much better the best states that stand still predict rows if they may move.

        All probabilities of moving in `TRIED` are tried, and the best is compared with standing
        still.
        """
        mixture = self.still[0]
        rows = PrepareRows(self.family)(log.of_events(log.rounds < MOST_ROUNDS))
        density = row_density(rows, self.family.coefficients(mixture.phi, mixture.noise)[0])
        n_states, prior = mixture.shares.shape[1], mixture.state_prior()[0]

        def evidence(moving: float) -> FloatArray:
            moves = switching_matrix(n_states, moving)
            log_predictive = expected_states(density, rows.rounds, moves, prior).log_predictive
            return np.bincount(rows.users, log_predictive, log.n_users).astype(np.float64)

        still = evidence(0.0)
        return max(
            (Estimate.from_values(evidence(moving) - still) for moving in TRIED),
            key=lambda gain: gain.mean,
        )

    def _try(self, problem: Problem, pieces: Problem, split: Split, n_states: int) -> Candidate:
        if n_states * problem.engine.n_actions > MOST_MEANS:
            return Candidate(n_states, None, reason=too_large(n_states, problem.engine.n_actions))
        try:
            start = best_of(
                pieces, n_states, n_starts=3, tolerance=_CHOICE_TOLERANCE, seed=split.seed
            )
        except ValueError as error:
            return Candidate(n_states, None, reason=str(error))
        gap = self.session_gap
        chains = [Chain.starting_at(start.mixture, session_gap=gap)]
        chains += [
            Chain.starting_at(one, SLOW, gap)
            for one in self.still
            if one.shares.shape[1] == n_states
        ]
        if len(chains) > 1:  # the rest of the way is for the start that is ahead after a few passes
            tried = [ascend_moving(problem, one, max_passes=_TRIAL) for one in chains]
            chains = [max(tried, key=lambda one: one.elbos[-1]).chain]
        moved = ascend_moving(problem, chains[0], tolerance=_CHOICE_TOLERANCE)
        scores = score(finish_moving(problem, moved, split.seed).model(), split.held_out)
        found = len(moved.chain.moves), None, scores, moved.chain
        return Candidate.scored(*found, elbo=moved.elbos[-1], requested=n_states)

    def _settled(self, fitted: FittedMoving, held_out: Log) -> tuple[MovingArms, HeldOut]:
        """Choose whether sessions learn the means as well, by some of the held-out users."""
        learner = self
        some = held_out.of_users(np.arange(min(_UNCERTAIN_USERS, held_out.n_users)))
        best = score(self._set(fitted).model(), some)
        for n_paths, strength in UNCERTAIN if self.session_gap is None else ():
            other = replace(self, n_paths=n_paths, strength=strength)
            judged = score(other._set(fitted).model(), some)
            if clearly_better(judged, best):
                learner, best = other, judged
        return learner, score(learner._set(fitted).model(), held_out)

    def _fitted(
        self, log: LogEngine, chain: Chain, seed: int, tolerance: float = TOLERANCE
    ) -> FittedMoving:
        problem = Problem.from_log(self.family, log)
        if log.n_events > LARGE:
            tolerance = LARGE_TOLERANCE * log.n_users
        moved = ascend_moving(problem, chain, tolerance=tolerance)
        return finish_moving(problem, moved, seed)

    def _set(self, fitted: FittedMoving) -> FittedMoving:
        return replace(fitted, n_paths=self.n_paths, strength=self.strength)

    def _learned(self, log: LogEngine, fitted: FittedMoving) -> Learned:
        settled = self._set(fitted)
        return Learned(settled.model(), None, log.action_counts, arms=settled)


def too_large(n_states: int, n_actions: int) -> str:
    return (
        f"{n_states} states and {n_actions:,} actions are too many for a state that moves (states "
        f"times actions may be {MOST_MEANS:,})"
    )


def _elbo(row: Candidate) -> float:
    return -inf if row.elbo is None else row.elbo


@dataclass(frozen=True)
class Segments:
    """A change of a log: every `length` consecutive rows of a user become a separate user."""

    length: int

    def __call__(self, log: Log) -> Log:
        number = log.rounds // self.length
        new = np.append(True, (np.diff(log.users) != 0) | (np.diff(number) != 0))
        owner, part = log.users[new], number[new]
        keys = user_hash.mix(log.keys[owner] + part.astype(np.uint64), 0, user_hash.SAMPLE)
        names = tuple(str(i) for i in range(len(owner)))
        return replace(log, users=np.cumsum(new) - 1, user_ids=names, known_keys=keys)
