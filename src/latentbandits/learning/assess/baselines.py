"""Learn what a model of several states must beat: one state, and a matrix factorisation.

One state is the same family with one state and its learned prior: users differ, but not in kinds.
The factorisation has biases of users and actions, r = c + b_a + d_u + u'v, and new users are folded
in: their level and vector have the posterior given their rewards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.assess.replay import PolicyPlayer, passes_for, playable_rounds, replay
from latentbandits.learning.attributes.tables import rows_as_actions
from latentbandits.learning.backends.backend import AnyLog
from latentbandits.learning.learners import Learned, Learner
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.selection import CLEAR, Candidate, Selection, clearly_below, judge
from latentbandits.policies.latent.bayes_ucb import mmGreedy
from latentbandits.report.report import Estimate, Progress

ONE_STATE = "one state"
FACTORISATION = "factorisation"

RANK = 5
"""Rank of the factorisation; its prior shrinks directions that the data do not hold."""

FIRST_ROUNDS = 10
"""One state must do as well in the first rounds, and in all rounds together."""

_NOT_CLEAR = 1.0  # paired standard errors that one state may be below several states
_MOST_USERS = 500


def learn_one_state(
    learner: Learner,
    selection: Selection,
    kept: AnyLog,
    held_out: Log,
    seed: int,
    progress: Progress,
) -> Selection:
    """Return the choice of one state; of a completed matrix, with the same rank and settings.

    `learner` is the one that made `selection`, before its settings were fixed: variation within a
    state is chosen anew for one state, which has more of it.
    """
    if selection.chosen.n_states == 1:
        return selection
    if selection.chosen.rank is None:
        return learner.select(kept, held_out, (1,), seed, progress)
    alone = Candidate(1, selection.chosen.rank)
    learned = selection.learner.learn(kept, alone, seed)
    scores = judge(learned, held_out)
    chosen = replace(
        alone, evidence=scores.evidence, rmse=scores.rmse, by_user=scores.by_user(), fit=learned
    )
    return Selection(selection.learner, (chosen,), chosen, learned, scores)


class Comparison(NamedTuple):
    """One state compared with several on held-out users."""

    n_states: int
    nats: Estimate  # log evidence of a user's rewards: several states less one
    preferred: bool  # whether held-out evidence clearly prefers several states
    leads: dict[int, Estimate]  # reward a round in rounds 1 to h: one state less several

    @property
    def one_is_as_good(self) -> bool:
        """Whether one state earns as much, within an error, in first rounds and to the end."""
        return bool(self.leads) and all(
            lead.mean >= -_NOT_CLEAR * lead.stderr for lead in self.leads.values()
        )

    @property
    def takes_one(self) -> bool:
        return self.one_is_as_good and not self.preferred

    @property
    def sentence(self) -> str:
        """The comparison in words; empty if one state earns less."""
        if not self.one_is_as_good:
            return ""
        rounds, lead = max(self.leads.items())
        text = (
            f"One state does as well as {self.n_states}: {lead:+} a round in rounds 1-{rounds} of "
            "held-out users"
        )
        if self.preferred:
            return (
                f"{text}. The states are kept because they predict rewards better, by "
                f"{self.nats} nats a user."
            )
        return f"{text}. So the model has one state: its users do not fall into kinds."

    def report(self) -> dict[str, Any]:
        """Return the comparison as plain data for report.json."""
        return {
            "states": self.n_states,
            "nats_per_user": self.nats.mean,
            "nats_stderr": self.nats.stderr if np.isfinite(self.nats.stderr) else None,
            "states_predict_better": self.preferred,
            "replay": [
                {"rounds": h, "over_states": lead.mean, "stderr": lead.stderr}
                for h, lead in self.leads.items()
            ],
            "taken": self.takes_one,
            "sentence": self.sentence,
        }


def compare_with_one_state(
    one: Selection, several: Selection, held_out: Log, seed: int
) -> Comparison:
    """Compare evidence, and rewards of the greedy policy in replay."""
    before, after = one.judged.by_user(), several.judged.by_user()
    return Comparison(
        several.learned.model.n_states,
        Estimate.from_values(after - before),
        clearly_below(before, after, CLEAR),
        _leads(one.learned, several.learned, held_out, seed),
    )


def _leads(one: Learned, several: Learned, log: Log, seed: int) -> dict[int, Estimate]:
    if log.features is None:
        log = log.of_events(several.counts[log.actions] > 0)
    log = log.of_users(np.arange(min(log.n_users, _MOST_USERS)))
    if np.count_nonzero(playable_rounds(log)) < 2:
        return {}
    players = {}
    rows = log
    for name, learned in (("one", one), ("several", several)):
        shown = learned
        if log.features is not None:
            shown, rows = rows_as_actions(learned, log)
        players[name] = PolicyPlayer(mmGreedy(shown.model), rows.n_actions, shown.features)
    played = replay(players, rows, passes=passes_for(rows), seed=seed)
    last = played.horizons[-1]
    return {h: played.difference("one", "several", h) for h in (min(FIRST_ROUNDS, last), last)}


def factorise(kept: AnyLog, seed: int) -> Learned | None:
    """Return a matrix factorisation with biases; None if there are too few users for one."""
    learner = LinearLearner(intercepts=True)
    rank = min(RANK, kept.n_users, kept.n_actions)
    try:
        return learner.learn(kept, Candidate(1, rank), seed)
    except ValueError:
        return None
