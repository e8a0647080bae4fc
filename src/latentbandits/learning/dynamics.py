"""Choose whether the latent state moves between a user's rows, and learn how.

A moving state needs rows in the order in which they happened. It is kept only if it predicts the
rows of held-out users, each in its own order, clearly better than the state that stands still: by
more than two paired standard errors over users. Replay does not judge it, because replay shows a
user's rows in another order.

`auto` first makes a cheap test: whether the states of the still model predict held-out rows better
if they may move with one small probability. If not, nothing more is tried. A requested
`session_gap` is always tried: a state that moves across pauses alone may not show in that test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.arms.learner import (
    LARGE,
    LARGE_TOLERANCE,
    MOST_MEANS,
    STATES,
    ArmsLearner,
    clearly_better,
)
from latentbandits.learning.arms.mixture import Climbed, Mixture, Problem, best_of
from latentbandits.learning.arms.moving import (
    TOLERANCE,
    Chain,
    FittedMoving,
    PrepareRows,
    climb_moving,
    finish_moving,
    row_density,
)
from latentbandits.learning.assess.heldout import MOST_ROUNDS, score
from latentbandits.learning.backends.backend import AnyLog, Engine, engine_of
from latentbandits.learning.fit_options import FitOptions
from latentbandits.learning.learners import (
    CLEAR,
    Candidate,
    Disagreement,
    Learned,
    Replicate,
    Selection,
    Split,
    States,
    clearly_below,
    try_states,
    vetoed,
)
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.transitions import expected_states
from latentbandits.models.arms.conjugate import Learnable
from latentbandits.models.checks import FloatArray
from latentbandits.models.composed.markov import switching_matrix
from latentbandits.report.report import Estimate

MOVING = (0.3, 0.1, 0.03, 0.01, 0.003)
"""Probabilities of a move in a round that the first, small test tries."""

SLOW = 0.01
"""Probability of a move at which states that stand still start to move."""

SEGMENT = 10
"""A user's rows are cut into segments of this length: clusters of these are the starts."""

MOST_USERS = 1_500
"""The number of users, sampled by hash, on which the number of states is chosen."""

UNCERTAIN = ((4, inf), (4, 100.0), (4, 10.0))
"""Paths per state, and variation of users within a state, that are tried beside known means."""

_UNCERTAIN_USERS = 300  # held-out users on which these are compared: they are slow
_CHOICE_TOLERANCE = 0.1  # ELBO gain of a pass, in nats, that ends the ascent of a candidate
_TRIAL = 10  # passes after which starts are compared
_SORTED = 0.99  # share of a user's steps in one direction, above which rows are sorted


@dataclass(frozen=True, eq=False)
class MovingArms:
    """A learner of arms whose state moves.

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
        few = kept if kept.n_users <= MOST_USERS else engine_of(kept.sample(MOST_USERS, seed))
        problem = Problem.from_log(self.family, few)
        pieces = Problem.from_log(self.family, few.mapped(Segments(SEGMENT)))
        wanted = STATES[1:] if states is None else tuple(states)
        progress.start("choosing the number of states that move", len(wanted))
        rows = try_states(
            wanted, lambda n_states: self._try(problem, pieces, split, n_states), _elbo, progress
        )
        best = self.choose(rows)
        learned = self._learned(kept, best.fit, seed, _CHOICE_TOLERANCE)
        if few is not kept:  # more users may hold more states
            for row in sorted(rows, key=lambda one: one.n_states):
                if row.fit and row.n_states > best.n_states:
                    other = self._learned(kept, row.fit, seed, _CHOICE_TOLERANCE)
                    if other.fitted.elbo <= learned.fitted.elbo:
                        break
                    best, learned = row, other
        return self._settle(learned, split.held_out, tuple(rows), best)

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """Return the candidate of highest ELBO that held-out evidence does not reject."""
        fitted = [row for row in rows if row.evidence is not None]
        if not fitted:
            raise LogError(rows[0].reason)
        return max((row for row in fitted if not vetoed(row, fitted, CLEAR)), key=_elbo)

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        """Learn from `log`, beginning with the chain of `chosen`."""
        return self._learned(engine_of(log), chosen.fit, seed)

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        """Yield nothing: the errors of the means come from users' scores."""
        yield from ()

    def widened(self, learned: Learned, disagreement: Disagreement) -> Learned:
        """Return the model as it is: there are no replicates."""
        return learned

    def settings(self) -> dict[str, Any]:
        return {"rewards": self.family.family_name, "method": "em", "paths": self.n_paths}

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
            tried = [climb_moving(problem, one, max_passes=_TRIAL) for one in chains]
            chains = [max(tried, key=lambda one: one.elbos[-1]).chain]
        moved = climb_moving(problem, chains[0], tolerance=_CHOICE_TOLERANCE)
        scores = score(finish_moving(problem, moved, split.seed).model(), split.held_out)
        found = len(moved.chain.moves), None, scores, moved.chain
        return Candidate.scored(*found, elbo=moved.elbos[-1], requested=n_states)

    def _settle(
        self, learned: Learned, held_out: Log, rows: tuple[Candidate, ...], chosen: Candidate
    ) -> Selection:
        """Choose whether sessions learn the means as well, by some of the held-out users."""
        learner = self
        some = held_out.of_users(np.arange(min(_UNCERTAIN_USERS, held_out.n_users)))
        best = score(learned.model, some)
        for n_paths, strength in UNCERTAIN if self.session_gap is None else ():
            other = replace(self, n_paths=n_paths, strength=strength)
            model = other._set(learned.fitted).model()
            judged = score(model, some)
            if clearly_better(judged, best):
                learner, best = other, judged
        fitted = learner._set(learned.fitted)
        learned = replace(learned, model=fitted.model(), fitted=fitted)
        settled = replace(chosen, fit=fitted.chain)
        rows = tuple(settled if row is chosen else row for row in rows)
        return Selection(learner, rows, settled, learned, score(learned.model, held_out))

    def _learned(
        self, log: Engine, chain: Chain, seed: int, tolerance: float = TOLERANCE
    ) -> Learned:
        problem = Problem.from_log(self.family, log)
        if log.n_events > LARGE:
            tolerance = LARGE_TOLERANCE * log.n_users
        moved = climb_moving(problem, chain, tolerance=tolerance)
        fitted = self._set(finish_moving(problem, moved, seed))
        return Learned(fitted.model(), None, log.action_counts, fitted=fitted)

    def _set(self, fitted: FittedMoving) -> FittedMoving:
        return replace(fitted, n_paths=self.n_paths, strength=self.strength)


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
        number = (np.arange(log.n_events) - log.starts[log.users]) // self.length
        new = np.append(True, (np.diff(log.users) != 0) | (np.diff(number) != 0))
        owner, part = log.users[new], number[new]
        keys = user_hash.mix(log.keys[owner] + part.astype(np.uint64), 0, user_hash.SAMPLE)
        names = tuple(str(i) for i in range(len(owner)))
        return replace(log, users=np.cumsum(new) - 1, user_ids=names, known_keys=keys)


# The choice between a state that stands still and one that moves.


@dataclass(frozen=True, eq=False)
class DynamicsChoice:
    """Whether the state moves, and why."""

    chosen: Literal["none", "markov"]
    reason: str
    nats: Estimate | None = None  # log evidence of a held-out user's rows: moving less still
    order: str | None = None  # the column that orders a user's rows

    def report(self, model: Any) -> dict[str, Any]:
        """Return the choice as plain data, with the moves of the written model."""
        moves = None if self.chosen == "none" else model.transition
        returning = None if self.chosen == "none" else model.returning
        return {
            "chosen": self.chosen,
            "reason": self.reason,
            "order": self.order,
            "nats_per_user": None if self.nats is None else self.nats.mean,
            "stderr": self.nats.stderr if self.nats and np.isfinite(self.nats.stderr) else None,
            "transition": None if moves is None else moves.tolist(),
            "returning": None if returning is None else returning.tolist(),
            "session_gap": None if self.chosen == "none" else model.session_gap,
        }


NOT_TRIED = DynamicsChoice("none", "a quick fit does not try a state that moves")


def choose_dynamics(
    selection: Selection, split: Split, options: FitOptions
) -> tuple[Selection, DynamicsChoice]:
    """Return the selection, of a state that moves if that predicts held-out rows better.

    LogError if such a state is demanded and cannot be learned.
    """
    dynamics, order = options.dynamics, options.order
    if dynamics == "none":
        return selection, DynamicsChoice("none", "a state that stands still was requested")
    learner = selection.learner
    reason = ""
    if not isinstance(learner, ArmsLearner) or selection.learned.fitted.log_actions is not None:
        reason = "only the state of arms whose rewards are not transformed can move"
    elif np.diff(split.held_out.starts).max() < 2:
        reason = "no held-out user has two rows"
    elif dynamics == "auto" and options.session_gap is None:
        reason = _not_worth_trying(selection, split.held_out, order)
    if reason and dynamics == "markov":
        raise LogError(f"dynamics markov: {reason}")
    if reason:
        return selection, DynamicsChoice("none", reason, order=order)
    assert isinstance(learner, ArmsLearner)
    family = learner.family.with_noise_by_action() if learner.by_action else learner.family
    moving_arms = MovingArms(family, _still(selection), session_gap=options.session_gap)
    try:
        moving = moving_arms.select(split, options.wanted_states)
    except LogError as error:
        if dynamics == "markov":
            raise
        return selection, DynamicsChoice("none", str(error), order=order)
    still, after = selection.judged.by_user(), moving.judged.by_user()
    nats = Estimate.from_values(after - still)
    gain = f"the log evidence of a held-out user's rows, in their order, changes by {nats:+} nats"
    if dynamics == "markov" or clearly_below(still, after, CLEAR):
        return replace(moving, warnings=(*selection.warnings, *moving.warnings)), DynamicsChoice(
            "markov", gain, nats, order
        )
    return selection, DynamicsChoice("none", gain, nats, order)


def _not_worth_trying(selection: Selection, held_out: Log, order: str | None) -> str:
    """Return why a moving state is not tried; empty if it may predict better."""
    if order is None:
        for name, values in (("rewards", held_out.rewards), ("actions", held_out.actions)):
            if is_sorted(held_out, np.asarray(values)):
                return f"users' rows are sorted by {name}, not by time: name the column of time"
    still = _still(selection)
    if not still:
        return "a model of one state has no state that could move"
    learner = selection.learner
    assert isinstance(learner, ArmsLearner)
    gain = gain_of_moving(learner.family, still[0], held_out)
    if gain.mean > gain.stderr:
        return ""
    return (
        "allowing the states to move changes the log evidence of a held-out user's rows by "
        f"{gain:+} nats at best"
    )


def _still(selection: Selection) -> tuple[Mixture, ...]:
    """Return the mixtures of several states that stand still, by their evidence, best first."""
    rows = [row for row in selection.rows if isinstance(row.fit, Climbed) and row.n_states > 1]
    rows.sort(key=lambda row: inf if row.log_evidence is None else -row.log_evidence)
    return tuple(row.fit.mixture for row in rows)


def is_sorted(log: Log, values: FloatArray) -> bool:
    """Return whether nearly all of a user's steps go up, or nearly all go down.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> users, items = [1] * 30 + [2] * 30, [*range(30), *range(30)]
    >>> log = read_log({"u": users, "a": items, "r": [0.0, 1.0] * 30}, "u", "a", "r")
    >>> is_sorted(log, log.actions), is_sorted(log, log.rewards)
    (True, False)
    """
    steps = np.diff(values)[np.diff(log.users) == 0]
    up, down = int((steps > 0).sum()), int((steps < 0).sum())
    return up + down >= 20 and max(up, down) >= _SORTED * (up + down)


def gain_of_moving(family: Learnable, mixture: Mixture, log: Log) -> Estimate:
    """Return how much better the states of a mixture predict a user's rows if they may move.

    All probabilities of moving in `MOVING` are tried, and the best is compared with standing still.
    """
    rounds = np.arange(log.n_events) - log.starts[log.users]
    rows = PrepareRows(family)(log.of_events(rounds < MOST_ROUNDS))
    density = row_density(rows, family.coefficients(mixture.phi, mixture.noise)[0])
    n_states, prior = mixture.shares.shape[1], mixture.state_prior()[0]

    def evidence(moving: float) -> FloatArray:
        moves = switching_matrix(n_states, moving)
        log_predictive = expected_states(density, rows.rounds, moves, prior).log_predictive
        return np.bincount(rows.users, log_predictive, log.n_users).astype(np.float64)

    still = evidence(0.0)
    return max(
        (Estimate.from_values(evidence(moving) - still) for moving in MOVING),
        key=lambda gain: gain.mean,
    )
