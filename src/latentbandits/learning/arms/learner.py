"""The learner of arms; it chooses the number of states, the noise and within-state variation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal

import numpy as np

from latentbandits.learning.arms.fitted import FittedArms, finish
from latentbandits.learning.arms.mixture import (
    TOLERANCE,
    Climbed,
    Earlier,
    Mixture,
    Problem,
    best_of,
    climb,
    joined,
    start_at,
)
from latentbandits.learning.assess.heldout import HeldOut, score
from latentbandits.learning.backends.backend import AnyLog, Engine, engine_of
from latentbandits.learning.learners import (
    LEAST_NATS,
    Candidate,
    Disagreement,
    Learned,
    Replicate,
    Selection,
    clearly_below,
    vetoed,
)
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.arms.conjugate import Learnable
from latentbandits.models.arms.gaussian import Gaussian
from latentbandits.models.checks import positive_count
from latentbandits.report.report import Progress

Method = Literal["em", "spectral"]

STATES = tuple(range(1, 21))
"""Numbers of states that `auto` tries, until the log evidence falls."""

STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, inf)
"""Candidate strengths, in rewards, of the prior for users' variation within a state."""

LARGEST = 5_000
"""The largest number of states times actions of a model of arms."""

LARGE = 10_000_000
LARGE_TOLERANCE = 1e-6
"""For logs of more than LARGE rewards: ELBO gain per user, in nats, below which ascent stops."""

_PATIENCE = 2  # numbers of states in a row that do not raise the evidence before the search ends
_FEW_USERS = 4_000  # number of users on which the evidence of a number of states is measured
_CLEAR = 2.0  # paired standard errors by which an alternative must be better to be chosen


@dataclass(frozen=True, eq=False)
class ArmsLearner:
    """A mixture over users of conjugate arms, fitted by variational Bayes (`mixture`).

    `by_action` (one noise per action of Gaussian rewards) and `strength` (of the variation within
    states) are chosen by held-out evidence if they are None. An `earlier` model is one of the
    starts of every fit with the same number of states.
    """

    family: Learnable = field(default_factory=Gaussian)
    method: Method = "em"
    n_starts: int = 6
    by_action: bool | None = None
    strength: float | None = None
    earlier: Earlier | None = None

    def select(
        self,
        kept: AnyLog,
        held_out: Log,
        states: Sequence[int] | None,
        seed: int,
        progress: Progress,
    ) -> Selection:
        """Fit every number of states to the `kept` users, and choose by log evidence.

        A number of states is rejected if its held-out evidence is more than two paired standard
        errors below the best. If `states` is None, 1, 2, ... are tried until log evidence falls.
        """
        wanted = STATES if states is None else tuple(states)
        progress.start("choosing the number of states", len(wanted))
        kept = engine_of(kept)
        problem = self._problem(kept)
        rows: list[Candidate] = []
        for i, n_states in enumerate(wanted):
            rows.append(self._try(problem, kept, held_out, n_states, seed))
            progress.advance(1)
            if rows[-1].evidence is None or (states is None and _past(rows)):
                progress.advance(len(wanted) - i - 1)
                break
        if all(row.evidence is None for row in rows):
            raise LogError(rows[0].reason)
        chosen = self.choose(rows)
        learner, fitted, judged = self._settle(problem, kept, held_out, chosen, seed, progress)
        learned = learner._learned(kept, fitted)
        return Selection(learner, tuple(rows), chosen, learned, judged)

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """Return the candidate of highest log evidence that held-out evidence does not reject.

        Among candidates whose log evidence is about equal, the one with the fewest states wins.
        """
        fitted = [row for row in rows if row.evidence is not None]
        left = [row for row in fitted if not vetoed(row, fitted, _CLEAR)]
        best = max(_evidence(row) for row in left)
        return min(
            (row for row in left if _evidence(row) >= best - LEAST_NATS),
            key=lambda row: row.n_states,
        )

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        """Learn from `log`, with the fit of `chosen` as one of the starts."""
        log = engine_of(log)
        check_size(log, chosen.n_states)
        problem = self._problem(log)
        start = chosen.fit.mixture if isinstance(chosen.fit, Climbed) else None
        fitted = finish(problem, self._climbed(problem, log, chosen.n_states, seed, start))
        if self.strength is not None:
            fitted = fitted.with_strength(self.strength)
        return self._learned(log, fitted)

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        """Refit to `n_fits` Poisson bootstraps of the users, all in the same passes."""
        fitted = learned.fitted
        assert isinstance(fitted, FittedArms)
        family = fitted.family
        problem = Problem.from_log(family, log, n_replicates=n_fits, seed=seed)
        start = fitted.mixture.take(np.zeros(n_fits, np.int64))
        mixture = climb(problem, start, tolerance=0.02, max_passes=300).mixture
        counting, _ = family.counts_and_sums
        counts = problem.totals.statistics @ counting
        for i in range(n_fits):
            means = family.at_noise(mixture.noise[i]).moments(mixture.phi[i])[0]
            yield Replicate(means, mixture.state_prior()[i], counts[i].round().astype(np.int64))

    def widened(self, learned: Learned, disagreement: Disagreement) -> Learned:
        """Return the model with an estimation variance of at least that between the replicates."""
        fitted = learned.fitted
        assert isinstance(fitted, FittedArms)
        wide = fitted.widened(disagreement.variance())
        return replace(learned, model=wide.model(), fitted=wide)

    def settings(self) -> dict[str, Any]:
        return {
            "rewards": self.family.family_name,
            "method": self.method,
            "noise": self.family.known,
            "noise_by_action": bool(self.by_action),
        }

    def _problem(self, log: Engine) -> Problem:
        family = self.family
        if self.by_action:
            family = family.with_noise_by_action()
        return Problem.from_log(family, log)

    def _try(
        self, problem: Problem, kept: Engine, held_out: Log, n_states: int, seed: int
    ) -> Candidate:
        try:
            check_size(kept, n_states)
            climbed = self._climbed(problem, kept, n_states, seed)
        except LogError as error:
            return Candidate(n_states, None, reason=str(error))
        fitted = finish(problem, climbed, most_users=_FEW_USERS)
        judged = _score(fitted, held_out)
        return Candidate(
            len(fitted.means),
            None,
            judged.evidence,
            judged.rmse,
            judged.by_user(),
            elbo=fitted.elbo,
            log_evidence=fitted.log_evidence,
            requested=n_states,
            fit=climbed,
        )

    def _climbed(
        self, problem: Problem, log: Engine, n_states: int, seed: int, start: Mixture | None = None
    ) -> Climbed:
        n_starts = self.n_starts if start is None else 2
        tolerance = TOLERANCE
        if log.n_events > LARGE:  # a start chosen on many users is already close to the maximum
            n_starts = 0 if start is not None else n_starts
            tolerance = LARGE_TOLERANCE * log.n_users
        if self.method == "spectral":
            from latentbandits.learning.mixture import spectral_start

            start, n_starts = spectral_start(problem, log, n_states, seed), 0
        starts = [] if start is None else [start]
        if self.earlier is not None and len(self.earlier.shares) == n_states:
            with suppress(LogError):  # means do not determine the family's parameters
                starts.append(start_at(problem, self.earlier.means, self.earlier.shares))
        extra = joined(*starts) if starts else None
        return best_of(
            problem, n_states, n_starts=n_starts, extra=extra, tolerance=tolerance, seed=seed
        )

    def _settle(
        self,
        problem: Problem,
        kept: Engine,
        held_out: Log,
        chosen: Candidate,
        seed: int,
        progress: Progress,
    ) -> tuple[ArmsLearner, FittedArms, HeldOut]:
        """Choose the noise of each action and the variation within states by held-out evidence."""
        assert chosen.fit is not None
        learner, fitted = self, finish(problem, chosen.fit)
        best = _score(fitted, held_out)
        if self.by_action is None and self.family.noise_is_free:
            other = replace(self, by_action=True)
            other_problem = other._problem(kept)
            again = finish(other_problem, climb(other_problem, chosen.fit.mixture))
            judged = _score(again, held_out)
            if clearly_better(judged, best):
                learner, fitted, best = other, again, judged
        if self.strength is not None:
            fitted = fitted.with_strength(self.strength)
            return learner, fitted, _score(fitted, held_out)
        progress.start("choosing the variation within states", len(STRENGTHS) - 1)
        strength, none = inf, best
        for nu in STRENGTHS[:-1]:
            judged = _score(fitted.with_strength(nu), held_out)
            progress.advance(1)
            if clearly_better(judged, none) and judged.evidence > best.evidence:
                strength, best = nu, judged
        return replace(learner, strength=strength), fitted.with_strength(strength), best

    def _learned(self, log: Engine, fitted: FittedArms) -> Learned:
        return Learned(fitted.model(), None, log.action_counts, fitted=fitted)


def _score(fitted: FittedArms, held_out: Log) -> HeldOut:
    return score(fitted.model(), held_out, log_actions=fitted.log_actions)


def clearly_better(one: HeldOut, other: HeldOut) -> bool:
    """Return whether the evidence of users is higher by more than two paired standard errors."""
    return clearly_below(other.by_user(), one.by_user(), _CLEAR)


def check_size(log: AnyLog, n_states: int) -> None:
    """Raise LogError if a log is too small, or a model too large, for `n_states` states."""
    positive_count("states", n_states)
    if n_states > log.n_users:
        raise LogError(
            f"{n_states} states are more than the log's {log.n_users} users: ask for at most "
            f"{log.n_users}, and far fewer to learn from"
        )
    if n_states * log.n_actions > LARGEST:
        raise LogError(
            f"a model of arms with {n_states} states and {log.n_actions:,} actions is too large "
            f"(states times actions may be {LARGEST:,}): use --kind linear for a large catalogue"
        )


def _evidence(row: Candidate) -> float:
    return -inf if row.log_evidence is None else row.log_evidence


def _past(rows: Sequence[Candidate]) -> bool:
    """Return whether the last few numbers of states did not raise the log evidence."""
    evidence = [_evidence(row) for row in rows]
    best = next(i for i, one in enumerate(evidence) if one >= max(evidence) - LEAST_NATS)
    return len(evidence) - 1 - best >= _PATIENCE
