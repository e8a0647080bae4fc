"""Choose the gate's ridge, and the number of states with the users' attributes, on held-out users.

Attributes tell users apart before their first reward. So they can support states that rewards alone
do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from latentbandits.learning.attributes.gate import (
    RIDGES,
    GateRow,
    PrepareGate,
    choose_ridge,
    learn_weights,
    user_evidence,
)
from latentbandits.learning.attributes.gated_arms import can_refine, grouped_by_attributes, refine
from latentbandits.learning.backends.backend import AnyLog
from latentbandits.learning.learners import Learned, Learner
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.selection import LEAST_NATS, Selection, clearly_below
from latentbandits.models.checks import FloatArray
from latentbandits.report.report import Progress

_MORE_STATES = 2  # states that are tried beyond the number chosen without attributes
_GROUPS_RIDGE = 3.0  # of states that start from groups of attributes
_CLEAR = 2.0  # standard errors by which held-out users must confirm these states


@dataclass(frozen=True, eq=False)
class GateChoice:
    """A model of the kept users with its gate, and the held-out evidence that chose it."""

    learned: Learned
    weights: FloatArray  # (n_states, 1 + n_attributes)
    ridge: float
    rows: list[GateRow]
    refined: bool  # whether the states were refined together with the gate
    by_user: FloatArray  # (n_users,): log evidence of each held-out user
    grouped: bool = False  # whether the refinement starts from groups of attributes

    @property
    def used(self) -> bool:
        """Whether users outside a gate's fit confirm it; else attributes change nothing."""
        return self.ridge != np.inf


def choose_gate(learned: Learned, kept: AnyLog, held_out: Log) -> GateChoice:
    """Choose the ridge by cross-fitted evidence; refine states of arms with the gate.

    The refinement is kept unless the held-out evidence is clearly lower with it.
    """
    ridge, rows = choose_ridge(learned, kept, held_out)
    assert held_out.attributes is not None
    weights = learn_weights(learned, kept, held_out.attributes.shape[1], ridge)
    by_user = user_evidence(PrepareGate(learned)(held_out), weights)
    choice = GateChoice(learned, weights, ridge, rows, False, by_user)
    if not can_refine(learned):
        return choice
    if not choice.used:
        return _choose_groups(choice, kept, held_out)
    # States that fit the attributes better support a weaker ridge.
    for weaker in (one for one in RIDGES if one <= ridge):
        refined, weights = refine(learned, kept, weights, weaker)
        after = user_evidence(PrepareGate(refined)(held_out), weights)
        if choice.refined and after.sum() <= choice.by_user.sum():
            break
        if not choice.refined and clearly_below(after, by_user, 1.0):
            break
        choice = GateChoice(refined, weights, weaker, rows, True, after)
    return choice


def _choose_groups(choice: GateChoice, kept: AnyLog, held_out: Log) -> GateChoice:
    """Return the choice of states that start from groups of attributes, if it is clearly better.

    Rewards alone may not tell states apart that attributes do. Held-out users must confirm them by
    two standard errors.
    """
    if choice.learned.model.n_states == 1:
        return choice
    start = grouped_by_attributes(choice.learned, kept)
    refined, weights = refine(start, kept, choice.weights, _GROUPS_RIDGE)
    after = user_evidence(PrepareGate(refined)(held_out), weights)
    if not clearly_below(choice.by_user, after, _CLEAR):
        return choice
    return GateChoice(refined, weights, _GROUPS_RIDGE, choice.rows, True, after, grouped=True)


def choose_states(
    learner: Learner,
    selection: Selection,
    kept: AnyLog,
    held_out: Log,
    seed: int,
    progress: Progress,
) -> Selection:
    """Return the selection with more states if these raise the held-out evidence with a gate."""
    first = selection.chosen.n_states
    if not can_refine(selection.learned):
        return selection
    best = choose_gate(selection.learned, kept, held_out).by_user
    for n_states in range(first + 1, first + 1 + _MORE_STATES):
        other = learner.select(kept, held_out, (n_states,), seed, progress)
        if other.chosen.n_states < n_states:
            break
        found = choose_gate(other.learned, kept, held_out)
        if found.used and found.by_user.sum() - best.sum() > LEAST_NATS:
            rows = [row for row in selection.rows if row.n_states != n_states]
            selection, best = replace(other, rows=(*rows, *other.rows)), found.by_user
    return selection
