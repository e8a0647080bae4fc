"""Compare the learned model with others of the same users.

The model of one state has the same family and a learned prior: users differ, but not in kinds. The
factorisation has biases of users and actions, r = c + b_a + d_u + u'v, and new users are folded in:
their level and vector have the posterior given their rewards.

The two kinds of model, arms and linear, are compared on the same held-out users, by the log
probability of each user's rewards given the earlier ones and, if that does not decide, by the
rewards that `mmGreedy` earns in replay. Arms are chosen unless a difference is clear. If there are
many users, a sample shows first whether arms are clearly better, because linear models take longer
to learn.

A moving state needs rows in the order in which they happened. It is kept only if it predicts the
rows of held-out users, each in its own order, clearly better than the state that stands still: by
more than two paired standard errors over users. Replay does not judge it, because replay shows a
user's rows in another order. `auto` first asks for little: whether the states of the still model
predict held-out rows better if they are allowed to move with one small probability. If not, nothing
more is tried. A requested `session_gap` is always tried: a state that moves across pauses alone may
not show in that test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.arms.moving import MovingArms
from latentbandits.learning.assess import replay as replays
from latentbandits.learning.assess.replay import Player, Playing, PolicyPlayer
from latentbandits.learning.backends.backend import AnyLog, LogEngine, engine_of, summary_of
from latentbandits.learning.fit_options import FitOptions, Form
from latentbandits.learning.learners import (
    CLEAR,
    Candidate,
    Learned,
    Learner,
    Selection,
    Split,
    States,
    clearly_below,
    clearly_better,
    judge,
    rows_as_actions,
)
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.rows import Log, cells_of_values
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.checks import FloatArray
from latentbandits.policies.latent.ucb import mmGreedy
from latentbandits.report.report import Estimate

ONE_STATE = "one state"
FACTORISATION = "factorisation"

RANK = 5
"""Rank of the factorisation; its prior shrinks directions that the data do not hold."""

FIRST_ROUNDS = 10
"""One state must do as well in the first rounds, and in all rounds together."""

PLAYED_FOR_STATES = 500
"""The number of held-out users on whom one state and several are replayed."""

_NOT_CLEAR = 1.0  # paired standard errors that one state may be below several states


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
    one: Selection
    several: Selection

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
    n_states, evidence = several.learned.model.n_states, evidence_of_states(one, several)
    return StateComparison(n_states, *evidence, leads, one, several)


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
    return Estimate.from_values(after - before), clearly_below(before, after)


def _leads(one: Learned, several: Learned, log: Log, playing: Playing) -> dict[int, Estimate]:
    log = several.known_rows(log)
    log = log.of_users(np.arange(min(log.n_users, PLAYED_FOR_STATES)))
    if not playing.enough(log):
        return {}
    playing = playing.within(log)
    players: dict[str, Player] = {}
    for name, learned in (("one", one), ("several", several)):
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


PLAYED_FOR_KINDS = 200
"""The number of held-out users, sampled by hash, on whom both kinds are replayed."""

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
            line = f"{line}, both learned from {self.sampled:,} users"
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
    tried: list[tuple[LinearLearner, States, float]] = [(linear, states, CLEAR)]
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
    better = clearly_below(asked.arms, asked.linear)
    if not better and not clearly_below(asked.linear, asked.arms):
        replayed, rounds = _replayed(arms, linear, asked.log, split.seed)
        better = replayed is not None and replayed.mean > CLEAR * replayed.stderr
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
    log = log.of_users(user_hash.sample(log.keys, PLAYED_FOR_KINDS, seed))
    players: dict[str, replays.Player] = {
        name: replays.PolicyPlayer(mmGreedy(one.learned.model), log.n_actions, one.learned.features)
        for name, one in (("arms", arms), ("linear", linear))
    }
    played = replays.replay(players, log, seed=seed)
    horizon = played.horizons[-1]
    return played.difference("linear", "arms", horizon), horizon


# The choice between a state that stands still and one that moves.

_SORTED = 0.99  # share of a user's steps in one direction, above which rows are sorted


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
    learner = selection.learner.moving(selection, options.session_gap)
    reason = ""
    if learner is None:
        reason = "only the state of arms whose rewards are not transformed can move"
    elif np.diff(split.held_out.starts).max() < 2:
        reason = "no held-out user has two rows"
    elif dynamics == "auto" and options.session_gap is None:
        reason = _not_worth_trying(learner, split.held_out, order)
    if reason and dynamics == "markov":
        raise LogError(f"dynamics markov: {reason}")
    if learner is None or reason:
        return selection, DynamicsChoice("none", reason, order=order)
    try:
        moving = learner.select(split, options.wanted_states)
    except LogError as error:
        if dynamics == "markov":
            raise
        return selection, DynamicsChoice("none", str(error), order=order)
    nats = Estimate.from_values(moving.judged.by_user() - selection.judged.by_user())
    gain = f"the log evidence of a held-out user's rows, in their order, changes by {nats:+} nats"
    if dynamics == "markov" or clearly_better(moving.judged, selection.judged):
        return replace(moving, warnings=(*selection.warnings, *moving.warnings)), DynamicsChoice(
            "markov", gain, nats, order
        )
    return selection, DynamicsChoice("none", gain, nats, order)


def _not_worth_trying(learner: MovingArms, held_out: Log, order: str | None) -> str:
    """Return why a moving state is not tried; empty if it may predict better."""
    if order is None:
        for name, values in (("rewards", held_out.rewards), ("actions", held_out.actions)):
            if is_sorted(held_out, np.asarray(values)):
                return f"users' rows are sorted by {name}, not by time: name the column of time"
    if not learner.still:
        return "a model of one state has no state that could move"
    gain = learner.gain(held_out)
    if gain.mean > gain.stderr:
        return ""
    return (
        "allowing the states to move changes the log evidence of a held-out user's rows by "
        f"{gain:+} nats at best"
    )


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


# The hidden choice of actions (`arms/hidden_choices.py`).

HIDDEN_CHOICE = (
    "users were shown actions by something that the log does not hold and that tells about their "
    "rewards: averages of actions are those of the users they were chosen for. The model was "
    "learned with that in mind, but log the probability of every choice (propensity), or what it "
    "was made by (--features, --user-features)"
)

_DEPENDS = 4.0  # standard deviations of the statistic beyond which actions depend on users


@dataclass(frozen=True, eq=False)
class DependencePass:
    """A pass that sums Pearson's statistic of independence of users and actions.

    For a user with n rows, n[a] of them of action a, it is sum_a n[a]^2 / (n p[a]) - n, with mean
    A - 1 and variance 2 (A - 1) (1 - 1/n) if actions do not depend on users.
    """

    def summarise(self, log: Log, share: FloatArray) -> FloatArray:
        pair = log.users * log.n_actions + log.actions
        pairs, counts = np.unique(pair, return_counts=True)
        rows = log.lengths.astype(np.float64)
        user, action = np.divmod(pairs, log.n_actions)
        statistic = float((counts**2 / (rows[user] * share[action])).sum() - rows.sum())
        freedom = np.count_nonzero(share) - 1
        seen = rows[rows > 0]
        return np.array([statistic, freedom * len(seen), 2 * freedom * (1 - 1 / seen).sum()])


def depends_on_users(log: LogEngine) -> bool:
    """Return whether one user's actions are more alike than different users' actions.

    >>> from latentbandits.learning.backends.backend import engine_of
    >>> from latentbandits.learning.generate import generate_arms
    >>> depends_on_users(engine_of(generate_arms(300, 20, n_states=2, n_actions=3).log))
    False
    """
    counts = log.action_counts.astype(np.float64)
    statistic, mean, variance = log.fold(DependencePass(), counts / counts.sum())
    return bool(statistic - mean > _DEPENDS * np.sqrt(variance))


def learn_choices(selection: Selection, split: Split, states: States) -> Selection | None:
    """Learn arms together with the choice of actions; None if that does not help.

    It helps if the log probability of held-out users' rewards, given their actions and their
    earlier rows, is higher by more than two paired standard errors.
    """
    learner = selection.learner.with_actions() if depends_on_users(split.kept) else None
    if learner is None:
        return None
    joint = learner.select(split, states)
    if not clearly_better(joint.judged, selection.judged):
        return None
    # Online, actions tell nothing: the model is judged without them.
    alone = judge(joint.learned, split.held_out)
    return replace(joint, judged=alone, warnings=(*joint.warnings, HIDDEN_CHOICE))
