"""Learners, what they learn, and their choice among candidates by the evidence of held-out users.

`learning/arms/` and `learning/linear/` implement the protocol `Learner`: select on held-out users,
learn from all, refit for the bootstrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from latentbandits.learning.arms.families import Cells
from latentbandits.learning.assess.heldout import HeldOut, score
from latentbandits.learning.backends.backend import AnyLog
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.report.report import Estimate, Progress


@dataclass(frozen=True, eq=False)
class Learned:
    """A learned model, with the features and counts of its actions."""

    model: Any  # GaussianArms, BernoulliArms, ..., LinearGaussian
    features: FloatArray | None  # (n_actions, n_features); None: actions are numbered
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    shrinkage: FloatArray | None = None  # (n_states,): shrinkage of the covariances
    fitted: Any = None  # data of the learner, for widening or refitting the model

    def rewards(self) -> FloatArray:
        """Return the mean reward of every action in every state, `(n_states, n_actions)`."""
        context = None if self.features is None else self.features[None]
        rewards: FloatArray = self.model.expected_rewards(context)[0]
        return rewards


def rows_as_actions(learned: Learned, log: Log) -> tuple[Learned, Log]:
    """Return model and log with every row as a separate action that has the row's features."""
    assert log.features is not None
    rows_log = replace(
        log,
        actions=np.arange(log.n_events),
        action_ids=tuple(str(row) for row in range(log.n_events)),
    )
    counts = np.ones(log.n_events, np.int64)
    return replace(learned, features=log.features, counts=counts), rows_log


class Replicate(NamedTuple):
    """A fit to resampled users."""

    rewards: FloatArray  # (n_states, n_actions)
    shares: FloatArray  # (n_states,)
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    moved: FloatArray | None = None  # (n_states, n_features): its weights less those of all users,
    # for a fit whose states are already in the same order


class Learner(Protocol):
    """A learner of one kind of model."""

    def select(
        self,
        kept: AnyLog,
        held_out: Log,
        states: Sequence[int] | None,
        seed: int,
        progress: Progress,
    ) -> Selection:
        """Fit candidates to the kept users, score them on the held-out users, and choose.

        `states` None: the learner's default range. The selection holds the learner with all
        settings fixed, the choice, and its model of the kept users.
        """

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """Choose among candidates; those without evidence could not be fitted."""

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        """Learn the chosen model from all users of `log`."""

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        """Yield fits to resampled users, for the bootstrap; their states are in any order."""

    def widened(self, learned: Learned, disagreement: Any) -> Learned:
        """Return the model with its prior widened by the variance of the replicates.

        That variance is in `disagreement` (`uncertainty.Disagreement`).
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings of the learner, for the report."""


CLEAR = 2.0
"""Paired standard errors beyond which evidence is clearly lower."""

LEAST_NATS = 2.0
"""The least difference of log evidence over all held-out users that counts in a choice."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One candidate of model selection and its scores.

    If `evidence` is None, the candidate could not be fitted; `reason` says why.
    """

    n_states: int
    rank: int | None
    evidence: float | None = None  # mean log density of a held-out reward, in nats
    rmse: float | None = None
    by_user: FloatArray | None = None  # (n_users,): log evidence of each user's sequence
    reason: str = ""
    elbo: float | None = None  # of the kept users, for a mixture of arms
    log_evidence: float | None = None  # the same, corrected where states overlap
    requested: int | None = None  # number of states before empty ones were dropped; None: the same
    fit: Any = None  # what was fitted to the kept users, in the learner's own form

    def row(self, chosen: bool) -> dict[str, Any]:
        return {
            "states": self.n_states if self.requested is None else self.requested,
            "kept_states": self.n_states,
            "rank": self.rank,
            "elbo": self.elbo,
            "log_evidence": self.log_evidence,
            "evidence": self.evidence,
            "rmse": self.rmse,
            "chosen": chosen,
            "reason": self.reason,
        }


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen setting, and all settings that were compared."""

    learner: Learner  # with all its settings fixed
    rows: tuple[Candidate, ...]
    chosen: Candidate
    learned: Learned  # from the kept users only
    judged: HeldOut  # scores of the held-out users under `learned`
    warnings: tuple[str, ...] = ()
    further: tuple[Learned | None, ...] = ()  # learned without a part of the kept users each;
    # None: that could not be learned


class Step(NamedTuple):
    """An optional step of a fit, and its effect on the log evidence of a held-out user."""

    name: str
    nats: Estimate  # evidence of a user's rewards with the step, less that without it
    used: bool  # it is left out if the evidence is clearly lower with it

    @property
    def warning(self) -> str:
        """The sentence about a step that is not used."""
        return (
            f"the {self.name} was left out: it changes the log evidence of a held-out user by "
            f"{self.nats:+}"
        )

    def row(self) -> dict[str, Any]:
        """Return the step as plain data for the report."""
        return {
            "step": self.name,
            "nats_per_user": self.nats.mean,
            "stderr": self.nats.stderr if np.isfinite(self.nats.stderr) else None,
            "used": self.used,
        }


def try_step(name: str, before: FloatArray, after: FloatArray) -> Step:
    """Compare the log evidence of users without (`before`) and with a step, `(n_users,)`.

    >>> try_step("widening", np.array([-9.0, -7.0]), np.array([-19.0, -16.0])).used
    False
    """
    return Step(name, Estimate.from_values(after - before), not clearly_below(after, before, CLEAR))


def judge(
    learned: Learned,
    log: Log,
    cells: Cells | None = None,
    log_actions: FloatArray | None = None,
) -> HeldOut:
    """Score the model on the users of `log`, for the actions whose features it knows.

    With `cells`, the scores have the probability of each reward's cell too. With `log_actions`,
    the actions of a log tell about the states of arms.
    """
    if learned.features is None:
        return score(learned.model, log, cells=cells, log_actions=log_actions)
    if log.features is not None:
        rows, rows_log = rows_as_actions(learned, log)
        scores = score(rows.model, rows_log, rows.features)
        return replace(scores, action=log.actions[scores.action])
    known = learned.counts[log.actions] > 0
    if not known.any():
        raise LogError("none of the held-out users' actions were seen among the other users")
    return score(learned.model, log.of_events(known), learned.features, cells=cells)


def fewest_states(rows: Sequence[Candidate]) -> Candidate:
    """Return the candidate of the best rank with the fewest states that is not clearly worse.

    Not clearly worse is within one paired standard error (over users) of the best evidence.

    >>> wide, narrow = np.array([-9.0, -7.0, -8.0]), np.array([-9.0, -7.1, -7.8])
    >>> rows = [Candidate(2, None, -8.0, 1.0, wide), Candidate(3, None, -7.97, 1.0, narrow)]
    >>> fewest_states(rows).n_states
    2
    """
    fitted = [row for row in rows if row.evidence is not None]
    best = _best(fitted)
    return min(
        (row for row in fitted if row.rank == best.rank and not _worse(row, best, 1.0)),
        key=lambda row: row.n_states,
    )


def vetoed(row: Candidate, rows: Sequence[Candidate], errors: float) -> bool:
    """Return whether the evidence of `row` is over `errors` paired standard errors below the best.

    Almost equal candidates can differ by a small but significant amount. So the difference must
    also be at least `LEAST_NATS` in all.
    """
    best = _best(rows)
    assert row.by_user is not None
    assert best.by_user is not None
    return clearly_below(row.by_user, best.by_user, errors)


def clearly_below(one: FloatArray, other: FloatArray, errors: float) -> bool:
    """Return whether log evidence by user is lower by more than `errors` paired standard errors.

    It must also be lower by at least `LEAST_NATS` in all.
    """
    lead = other - one
    stderr = lead.std(ddof=1) / np.sqrt(len(lead)) if len(lead) > 1 else 0.0
    return bool(lead.mean() > errors * stderr and lead.sum() > LEAST_NATS)


def _best(rows: Sequence[Candidate]) -> Candidate:
    return max(rows, key=lambda row: -np.inf if row.evidence is None else row.evidence)


def _worse(row: Candidate, best: Candidate, errors: float) -> bool:
    assert row.by_user is not None
    assert best.by_user is not None
    lead = best.by_user - row.by_user
    stderr = lead.std(ddof=1) / np.sqrt(len(lead)) if len(lead) > 1 else 0.0
    return bool(lead.mean() > errors * stderr)
