"""How many states, and of what rank: what the sequences of held-out users are evidence for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.learning.heldout import HeldOut, score
from latentbandits.learning.learners import Learned, Learner, LinearLearner
from latentbandits.learning.logs import Log
from latentbandits.learning.progress import Progress
from latentbandits.learning.tables import LogError
from latentbandits.models.checks import FloatArray

STATES = (1, 2, 3, 4, 5, 6, 8, 10)
"""Numbers of states that `auto` tries."""

REGS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Regularisations that `auto` tries, in units of the rewards' standard deviation: a completion's
penalty is a nuclear norm, which has the units of a reward."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One row of the table that a choice is made from.

    Without `evidence` it could not be fitted, for the `reason`.
    """

    n_states: int
    rank: int | None
    evidence: float | None = None  # mean log density of a held-out reward, in nats
    rmse: float | None = None
    by_user: FloatArray | None = None  # (n_users,): log evidence of each one's sequence
    reason: str = ""

    def row(self, chosen: bool) -> dict[str, Any]:
        return {
            "states": self.n_states,
            "rank": self.rank,
            "evidence": self.evidence,
            "rmse": self.rmse,
            "chosen": chosen,
            "reason": self.reason,
        }


def judge(learned: Learned, log: Log) -> HeldOut:
    """How well the model foresees the users of `log`, on the actions that it has features for."""
    if learned.features is None:
        return score(learned.model, log)
    known = learned.counts[log.actions] > 0
    if not known.any():
        raise LogError("none of the held-out users' actions were seen among the other users")
    return score(learned.model, log.of_events(known), learned.features)


def candidates(
    learner: Learner,
    kept: Log,
    held_out: Log,
    states: Sequence[int],
    ranks: Sequence[int | None],
    seed: int,
    progress: Progress,
) -> list[Candidate]:
    """Fit every combination to the users kept, and judge it on those held out.

    Where the users are too few for some number of states, they are for any larger one.
    """
    progress.start("choosing states and rank", len(states) * len(ranks))
    rows = []
    for rank in ranks:
        prepared = learner.prepare(kept, rank, seed)
        for i, n_states in enumerate(states, start=1):
            rows.append(_try(learner, prepared, held_out, n_states, rank, seed))
            if rows[-1].evidence is None:
                progress.advance(len(states) - i + 1)
                break
            progress.advance(1)
    if all(row.evidence is None for row in rows):
        raise LogError(rows[0].reason)
    return rows


def choose(rows: Sequence[Candidate]) -> Candidate:
    """The rank of the best evidence, and there the fewest states that are not clearly worse than
    the best: within one standard error of their difference, user by user.

    >>> wide, narrow = np.array([-9.0, -7.0, -8.0]), np.array([-9.0, -7.1, -7.8])
    >>> rows = [Candidate(2, None, -8.0, 1.0, wide), Candidate(3, None, -7.97, 1.0, narrow)]
    >>> choose(rows).n_states
    2
    """
    fitted = [row for row in rows if row.evidence is not None]
    best = max(fitted, key=lambda row: row.evidence or -np.inf)
    return min(
        (row for row in fitted if row.rank == best.rank and _no_worse(row, best)),
        key=lambda row: row.n_states,
    )


def choose_reg(kept: Log, held_out: Log, seed: int, progress: Progress) -> float:
    """The regularisation under which one state of moderate rank foresees held-out users best."""
    scale = float(kept.rewards.std()) or 1.0
    rank = min(5, kept.n_users, kept.n_actions)
    progress.start("choosing the regularisation", len(REGS))
    evidence = {}
    for reg in REGS:
        learner = LinearLearner(reg=reg * scale)
        learned = learner.learn(learner.prepare(kept, rank, seed), 1, seed)
        evidence[reg * scale] = judge(learned, held_out).evidence
        progress.advance(1)
    return max(evidence, key=evidence.__getitem__)


def _try(
    learner: Learner, prepared: Any, held_out: Log, n_states: int, rank: int | None, seed: int
) -> Candidate:
    try:
        learned = learner.learn(prepared, n_states, seed)
    except ValueError as error:
        return Candidate(n_states, rank, reason=str(error))
    found = judge(learned, held_out)
    return Candidate(n_states, rank, found.evidence, found.rmse, found.by_user())


def _no_worse(row: Candidate, best: Candidate) -> bool:
    assert row.by_user is not None
    assert best.by_user is not None
    lead = best.by_user - row.by_user
    stderr = lead.std(ddof=1) / np.sqrt(len(lead)) if len(lead) > 1 else 0.0
    return bool(lead.mean() <= stderr)
