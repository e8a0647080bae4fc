"""Compare the learned model with others of the same users.

The model of one state has the same family and a learned prior: users differ, but not in kinds. The
factorisation has biases of users and actions, r = c + b_a + d_u + u'v, and new users are folded in:
their level and vector have the posterior given their rewards.

The two kinds of model, arms and linear, are compared on the same held-out users, by the log
probability of each user's rewards given the earlier ones and, if that does not decide, by the
rewards that `mmGreedy` earns in replay. Arms are chosen unless a difference is clear. If there are
many users, a sample shows first whether arms are clearly better, because linear models take longer
to learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.assess import replay as replays
from latentbandits.learning.assess.replay import Player, Playing, PolicyPlayer
from latentbandits.learning.backends.backend import AnyLog, engine_of, summary_of
from latentbandits.learning.fit_options import Form
from latentbandits.learning.learners import (
    CLEAR,
    Candidate,
    Learned,
    Learner,
    Selection,
    Split,
    States,
    clearly_below,
    judge,
    rows_as_actions,
)
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.rows import Log, cells_of_values
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.checks import FloatArray
from latentbandits.policies.latent.ucb import mmGreedy
from latentbandits.report.notebook import plural
from latentbandits.report.report import Estimate

ONE_STATE = "one state"
FACTORISATION = "factorisation"

RANK = 5
"""Rank of the factorisation; its prior shrinks directions that the data do not hold."""

FIRST_ROUNDS = 10
"""One state must do as well in the first rounds, and in all rounds together."""

_NOT_CLEAR = 1.0  # paired standard errors that one state may be below several states
_MOST_USERS = 500


def learn_one_state(learner: Learner, selection: Selection, split: Split) -> Selection:
    """Return the choice of one state; a completed matrix keeps its rank and settings.

    `learner` made `selection`, before its settings were fixed: variation within a state is larger
    for one state, and is chosen anew.
    """
    if selection.chosen.n_states == 1:
        return selection
    if selection.chosen.rank is None:
        return learner.select(split, (1,))
    rank = selection.chosen.rank
    learned = selection.learner.learn(split.kept, Candidate(1, rank), split.seed)
    scores = judge(learned, split.held_out)
    chosen = Candidate.scored(1, rank, scores, learned)
    return Selection(selection.learner, (chosen,), chosen, learned, scores)


class StateComparison(NamedTuple):
    """One state compared with several on held-out users."""

    n_states: int
    nats: Estimate  # log evidence of a user's rewards: several states less one
    preferred: bool  # whether held-out evidence clearly prefers several states
    leads: dict[int, Estimate]  # reward a round in rounds 1 to h: one state less several
    # to the largest h, with later rounds if sessions are short (`Replay.lead`)

    @property
    def one_is_as_good(self) -> bool:
        """Whether one state earns as much, within an error, in first rounds and to the end.

        Where nothing could be replayed, nothing says that several states earn more.
        """
        return all(lead.mean >= -_NOT_CLEAR * lead.stderr for lead in self.leads.values())

    @property
    def takes_one(self) -> bool:
        return self.one_is_as_good and not self.preferred

    @property
    def sentence(self) -> str:
        """The comparison in words; empty if one state earns less."""
        if not self.one_is_as_good:
            return ""
        if not self.leads:
            without = "Nothing could be replayed"
            if self.preferred:
                return f"{without}. {self.n_states} states predict rewards better than one."
            return (
                f"{without}, and {self.n_states} states do not clearly predict rewards better than "
                "one. So the model has one state."
            )
        lead = self.leads[max(self.leads)]
        text = (
            f"One state does as well as {self.n_states}: {lead:+} a round in replay of held-out "
            "users"
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
    one: Selection,
    several: Selection,
    held_out: Log,
    playing: Playing,
) -> StateComparison:
    """Compare evidence, and rewards of the greedy policy in replay."""
    leads = _leads(one.learned, several.learned, held_out, playing)
    return StateComparison(several.learned.model.n_states, *evidence_of_states(one, several), leads)


def evidence_of_states(
    one: Selection, several: Selection, further: Sequence[Log] = ()
) -> tuple[Estimate, bool]:
    """Return the mean gain in a user's log evidence from several states, and whether it is clear.

    Users of each log in `further` count too, scored by models that were learned without them.
    """
    scores = [(one.judged, several.judged)]
    if further:
        for users, *models in zip(further, one.further, several.further, strict=True):
            with suppress(LogError):  # the model knows none of their actions
                judged = [judge(learned, users) for learned in models if learned is not None]
                if len(judged) == 2:
                    scores.append((judged[0], judged[1]))
    before, after = (
        np.concatenate([one.by_user() for one in side]) for side in zip(*scores, strict=True)
    )
    return Estimate.from_values(after - before), clearly_below(before, after, CLEAR)


def _leads(one: Learned, several: Learned, log: Log, playing: Playing) -> dict[int, Estimate]:
    if log.features is None:
        log = log.of_events(several.counts[log.actions] > 0)
    log = log.of_users(np.arange(min(log.n_users, _MOST_USERS)))
    if not playing.enough(log):
        return {}
    playing = playing.within(log)
    players: dict[str, Player] = {}
    rows = log
    for name, learned in (("one", one), ("several", several)):
        shown = learned
        if log.features is not None:
            shown, rows = rows_as_actions(learned, log)
        policy = mmGreedy(shown.model)
        clicks = playing.clicks_for(policy)
        if clicks is None:
            return {}
        players[name] = PolicyPlayer(policy, rows.n_actions, shown.features, clicks=clicks)
    played = playing.replay(players, rows)
    last = played.horizons[-1]
    first = min(FIRST_ROUNDS, last)
    return {
        first: played.difference("one", "several", first),
        last: played.lead("one", "several"),
    }


def factorise(kept: AnyLog, seed: int) -> Learned | None:
    """Return a matrix factorisation with biases; None if there are too few users for one."""
    learner = LinearLearner(intercepts=True)
    rank = min(RANK, kept.n_users, kept.n_actions)
    try:
        return learner.learn(kept, Candidate(1, rank), seed)
    except ValueError:
        return None


MOST_USERS = 200
"""The number of held-out users, sampled by hash, that are replayed."""

_CLEAR = 2.0  # paired standard errors

SAMPLED_USERS = 300
"""Size of the sample of users that both kinds are first learned from, if there are more."""

_FEW_SWEEPS = 10  # enough for one state of the sample
_FAR = 10.0  # paired standard errors that several states of a linear model do not make up


@dataclass(frozen=True, eq=False)
class KindChoice:
    """The chosen kind of model, and its comparison with the other kind."""

    chosen: Form
    other: Form
    evidence: Estimate  # log probability of a user's rewards: that of the chosen less the other's
    replayed: Estimate | None  # reward of a round, likewise; None: nothing was replayed
    rounds: int
    log_probability: Mapping[Form, float]  # of a held-out reward, in nats
    sampled: int | None = None  # users that both were learned from; None: all kept users

    @property
    def sentence(self) -> str:
        """The comparison in one line."""
        line = (
            f"{self.chosen}: the log probability of a held-out user's rewards is "
            f"{self.evidence:+} nats compared with {self.other}"
        )
        if self.sampled is not None:
            line = f"{line}, both learned from {plural(self.sampled, 'user')}"
        if self.replayed is None:
            return line
        return f"{line}, and mmGreedy earns {self.replayed:+} a round in rounds 1-{self.rounds}"

    def report(self) -> dict[str, Any]:
        """Return the choice as plain data for report.json."""
        replayed = self.replayed
        return {
            "chosen": self.chosen,
            "sentence": self.sentence,
            "over": self.other,
            "nats_per_user": self.evidence.mean,
            "nats_per_user_stderr": self.evidence.stderr,
            "log_probability": dict(self.log_probability),
            "replay": None if replayed is None else replayed.mean,
            "replay_stderr": None if replayed is None else replayed.stderr,
            "rounds": self.rounds,
            "sampled_users": self.sampled,
        }


def arms_of_sample(
    arms: Selection, linear: LinearLearner, split: Split, states: States
) -> KindChoice | None:
    """Return the choice of arms, if held-out rewards are clearly more probable under them.

    Both kinds are learned from a sample of the kept users, the linear model first with one state,
    and only if that is not far behind, with several. None: nothing is decided, because the sample
    does not choose linear models.
    """
    if split.kept.n_users <= SAMPLED_USERS:
        return None
    sample = split._replace(kept=engine_of(split.kept.sample(SAMPLED_USERS, split.seed)))
    tried: list[tuple[LinearLearner, States, float]] = [(linear, states, _CLEAR)]
    if states is None:
        tried.insert(0, (replace(linear, sweeps=_FEW_SWEEPS), (1,), _FAR))
    with suppress(ValueError):  # the sample has too few rewards
        without = arms.learner.learn(sample.kept, arms.chosen, split.seed)
        for learner, wanted, errors in tried:
            given = learner.select(sample, wanted).learned
            asked = _log_probabilities(without, given, split.held_out)
            if clearly_below(asked.linear, asked.arms, errors):
                lead = Estimate.from_values(asked.arms - asked.linear)
                return KindChoice("arms", "linear", lead, None, 0, asked.means, SAMPLED_USERS)
    return None


def choose_kind(arms: Selection, linear: Selection, split: Split) -> KindChoice:
    """Choose between the best model of arms and the best linear model of the same users.

    The kind whose held-out rewards are clearly more probable is chosen; if none is, the one that
    clearly earns more in replay; otherwise arms. Only actions that both models know are compared.
    """
    asked = _log_probabilities(arms.learned, linear.learned, split.held_out)
    lead, replayed, rounds = Estimate.from_values(asked.linear - asked.arms), None, 0
    better = clearly_below(asked.arms, asked.linear, _CLEAR)
    if not better and not clearly_below(asked.linear, asked.arms, _CLEAR):
        replayed, rounds = _replayed(arms, linear, asked.log, split.seed)
        better = replayed is not None and replayed.mean > _CLEAR * replayed.stderr
    if not better:
        lead = Estimate(-lead.mean, lead.stderr)
        replayed = None if replayed is None else Estimate(-replayed.mean, replayed.stderr)
    chosen: Form = "linear" if better else "arms"
    other: Form = "arms" if better else "linear"
    return KindChoice(chosen, other, lead, replayed, rounds, asked.means)


class _LogProbabilities(NamedTuple):
    """The log probabilities of held-out users' rewards for actions that both models know."""

    log: Log
    arms: FloatArray  # (n_users,)
    linear: FloatArray
    means: dict[Form, float]  # of a reward


def _log_probabilities(arms: Learned, linear: Learned, held_out: Log) -> _LogProbabilities:
    known = (arms.counts > 0) & (linear.counts > 0)
    log = held_out.of_events(known[held_out.actions])
    rewards = summary_of(log).rewards
    cells = cells_of_values(rewards.values, rewards.off_lattice)
    of_arms, of_linear = (judge(one, log, cells) for one in (arms, linear))
    without, given = of_arms.log_probability_by_user(), of_linear.log_probability_by_user()
    n = len(of_arms.reward)
    means: dict[Form, float] = {"arms": without.sum() / n, "linear": given.sum() / n}
    return _LogProbabilities(log, without, given, means)


def _replayed(
    arms: Selection, linear: Selection, log: Log, seed: int
) -> tuple[Estimate | None, int]:
    """Return the linear model's lead over arms in a round's reward, and the rounds."""
    rounds = replays.playable_rounds(log)
    if np.count_nonzero(rounds) < replays.FEWEST_USERS:
        return None, 0
    log = log.of_users(np.flatnonzero(rounds))
    if log.n_users > MOST_USERS:
        log = log.of_users(user_hash.sample(log.keys, MOST_USERS, seed))
    players: dict[str, replays.Player] = {
        name: replays.PolicyPlayer(mmGreedy(one.learned.model), log.n_actions, one.learned.features)
        for name, one in (("arms", arms), ("linear", linear))
    }
    played = replays.replay(players, log, seed=seed)
    horizon = played.horizons[-1]
    return played.difference("linear", "arms", horizon), horizon
