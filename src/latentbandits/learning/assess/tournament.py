"""Play the policies on the model: on held-out users' real rewards, and on users drawn from it.

The model that is replayed is the written one but for the held-out users: it is learned without
them, widened alike, written and loaded again. Simulation plays the model of all users, which is the
one that is written. The two models differ little, but a policy that explores little can do well on
one of them and badly on the other. `verdict.py` decides from both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from latentbandits.environments.from_model import UsersOfModel
from latentbandits.learning import user_hash
from latentbandits.learning.assess import replay as replays
from latentbandits.learning.assess.list_replay import ListRounds, PerLook
from latentbandits.learning.assess.replay import (
    SINGLE_ACTIONS,
    Player,
    Playing,
    PolicyPlayer,
    Replay,
    ScorePlayer,
    most_users,
)
from latentbandits.learning.assess.verdict import (
    FIRST_ROUNDS,
    NOT_SIMULATED,
    POPULARITY,
    UNIFORM,
    UNJUDGED,
    UNKNOWN_ROUNDS,
    Judgement,
    Simulated,
    nothing_replayed,
)
from latentbandits.learning.attributes.gate import with_ones
from latentbandits.learning.backends.backend import AnyLog, engine_of, summary_of
from latentbandits.learning.learners import Learned, rows_as_actions
from latentbandits.learning.logs.rows import Log, LogSummary
from latentbandits.models.artefacts import Catalogue, load_files, model_files, notes_of, read_files
from latentbandits.models.attributes.parts import log_softmax, part
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.protocol import with_defaults
from latentbandits.policies.latent.ucb import mmGreedy
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import Inputs, build
from latentbandits.report.report import Estimate, Progress, Silent
from latentbandits.simulation.simulate import simulate
from latentbandits.simulation.tune import TunedPolicy, replayed_candidates, tune

EFFORT = 0.4
"""Number of users to play, as a share of those of a full `tune`."""

MOST_SIMULATED = 100
"""Users drawn from the model play as many rounds as a user of the log has rows on average, at most
this many: exploration that would pay in longer sessions only is not worth its price."""

RARE = 0.01
"""If at most this share of a log's rows repeat an action of their user, simulated users are shown
no action twice."""

USED_UP = 3
"""They then play at most one round for so many actions: policies that use up all of them end with
the same total."""

MOST_SHOWN = 50
"""Largest number of actions with features that simulated rounds offer all at once."""

_SIMULATED_USERS = 1_000  # for the loss in the first rounds, and for the gain


def unjudged(
    learned: Learned, playing: Playing = SINGLE_ACTIONS, doubts: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the report for the case that nothing could be replayed.

    The recommended policy is the winner of `tune` on users drawn from the model, if the features of
    its actions are known; popularity if there are `doubts` about the model's predictions.
    """
    model, recommended = learned.model, UNJUDGED
    inputs = Inputs(model, horizon=UNKNOWN_ROUNDS, items=learned.features)
    policies = _suited(replayed_candidates(inputs), playing)
    known = learned.features is not None or not model.n_features
    if doubts:
        recommended = POPULARITY
    elif known and policies and not with_defaults(model).is_sampled:
        recommended = tune(
            model, UNKNOWN_ROUNDS, learned.features, list(policies), seed=playing.seed,
            offered=playing.offered, effort=EFFORT, progress=playing.progress, **_shown(playing),
        ).winner  # fmt: skip
    return nothing_replayed(recommended, doubts[0] if doubts else "", playing)


def judge_policies(
    learned: Learned,
    kept: AnyLog,
    held_out: Log,
    *,
    playing: Playing = SINGLE_ACTIONS,
    choosing: Log | None = None,
    written: Learned | None = None,
    baselines: Mapping[str, Learned] = MappingProxyType({}),
    policies: Sequence[str] = (),
) -> Judgement | None:
    """Replay the policies of the registry that can act on the model, and the baselines.

    Args:
        learned: the model that is judged, learned from the users of `kept` alone.
        kept: the users that the model and the baselines are learned from.
        held_out: the users whose rewards the verdict depends on.
        playing: what rounds show, and how often each user is played.
        choosing: other users, on whose rewards the policy is chosen; None: `held_out`.
        written: the model of all users, from which users are simulated; None: `learned`.
        baselines: other models of the same users by name, which are played greedily.
        policies: the policies that are played; none: all that can be recommended.

    Returns:
        None if fewer than two users have three rows or more, so that differences have no error.
    """
    stage = _Replaying(learned, kept, baselines, tuple(policies), playing)
    judging = stage.playable(held_out)
    if judging is None:
        return None
    replayed = stage.play(judging)
    other = None if choosing is None else stage.playable(choosing)
    summary = summary_of(kept).rewards
    before = Judgement(
        replayed,
        tuple(stage.on_model),
        NOT_SIMULATED,
        value_of_state(*stage.shown(learned, judging), playing),
        summary.deviation,
        choosing=None if other is None else stage.play(other),
        separate=learned.model.n_states == 1 and learned.features is None,
        playing=playing,
    )
    deciding, log = stage.shown(learned if written is None else written, judging)
    admitted = {name: build(name, stage.inputs(deciding)) for name in before.admitted}
    typical = typical_session(summary_of(kept), playing.length)
    if not admitted or with_defaults(deciding.model).is_sampled:
        return before
    sessions = _Sessions.of(deciding, log, typical, playing)
    judgement = replace(before, simulated=sessions.compared(admitted))
    gain = sessions.gain(admitted[judgement.preferred])
    return replace(judgement, simulated=replace(judgement.simulated, gain=gain))


@dataclass(frozen=True, eq=False)
class _Replaying:
    """Replay of a model's policies and of the baselines, on any held-out users."""

    learned: Learned
    kept: AnyLog
    baselines: Mapping[str, Learned]
    policies: tuple[str, ...]
    playing: Playing

    def playable(self, log: Log) -> Log | None:
        """Return the users to play, with rows of known actions; None if fewer than two can."""
        log = self.learned.known_rows(log)
        if not self.playing.enough(log):
            return None
        most = most_users(self.learned.model)
        return log.of_users(user_hash.sample(log.keys, most, self.playing.seed))

    def shown(self, learned: Learned, log: Log) -> tuple[Learned, Log]:
        """Return model and log; rows with row features are separate actions."""
        if log.features is None:
            return learned, log
        shown, rows = rows_as_actions(learned, log)
        if part(learned.model, "encoder") is None and learned.features is not None:
            shown = replace(shown, features=learned.features[log.actions])
        return shown, rows

    def inputs(self, learned: Learned) -> Inputs:
        """Return what policies are built from."""
        rewards = summary_of(self.kept).rewards
        span = (rewards.least, rewards.most) if rewards.least < rewards.most else None
        rounds = replays.MOST_ROUNDS
        return Inputs(learned.model, reward_range=span, horizon=rounds, items=learned.features)

    @cached_property
    def on_model(self) -> dict[str, AnyPolicy]:
        """The policies on the model that are played."""
        inputs = self.inputs(self.learned)
        if self.policies:
            return {name: build(name, inputs) for name in self.policies}
        return _suited(replayed_candidates(inputs), self.playing)

    def play(self, log: Log) -> Replay:
        """Replay the model's policies and the baselines."""
        playing = self.playing.within(log)
        popular = popular_averages(self.kept, self.playing.lists)
        if log.features is not None:
            popular = popular[log.actions]
        log_prior = users_log_prior(self.learned.model, log)
        others = {name: self.shown(other, log)[0] for name, other in self.baselines.items()}
        learned, log = self.shown(self.learned, log)
        players: dict[str, Player] = {
            UNIFORM: ScorePlayer(np.zeros(log.n_actions)),
            POPULARITY: ScorePlayer(popular),
        }

        def add(name: str, policy: AnyPolicy, of: Learned, prior: FloatArray | None = None) -> None:
            clicks = playing.clicks_for(policy)
            if clicks is not None:
                players[name] = PolicyPlayer(policy, log.n_actions, of.features, prior, clicks)

        for name, other in others.items():
            add(name, mmGreedy(other.model), other)
        scratch = "TS" if learned.features is None else "LinTS"
        add(scratch, build(scratch, self.inputs(learned)), learned)
        for name, policy in self.on_model.items():
            add(name, policy, learned, log_prior)
        return playing.replay(players, log)


def popular_averages(log: AnyLog, lists: ListRounds | None) -> FloatArray:
    """Return the average reward of every action by which popularity ranks them.

    In a log of lists a reward counts by the probability that its position was looked at.
    """
    if lists is not None:
        log = engine_of(log).mapped(PerLook(lists))
    return replays.action_averages(log)


def _suited(policies: dict[str, AnyPolicy], playing: Playing) -> dict[str, AnyPolicy]:
    """Return the policies that can show lists, if rounds show lists."""
    return {
        name: one for name, one in policies.items() if playing.clicks_for(one) == playing.clicks
    }


def _shown(playing: Playing) -> dict[str, Any]:
    """Return the arguments of `simulate` and `tune` about lists."""
    one = playing.lists is None
    return {} if one else {"length": playing.length, "click_model": playing.clicks}


def users_log_prior(model: Any, log: Log) -> FloatArray | None:
    """Return log P(s | z) of every user, `(n_users, n_states)`; None without attributes.

    The log has the users' attributes z as the model's gate encodes them.
    """
    gate = part(model, "gate")
    if gate is None or log.attributes is None:
        return None
    return log_softmax(with_ones(log) @ gate.weights.T)


def judge_saved(
    path: str | os.PathLike[str],
    kept: Log,
    held_out: Log,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Judgement | None:
    """Judge a saved model and the policy that it recommends by users it was not learned from.

    Args:
        path: the folder of the model.
        kept: the users that it was learned from, for the average reward of every action.
        held_out: other users.
        seed: of all randomness.
        progress: called after each policy.

    Returns:
        None if fewer than two users have three rows or more. If the model recommends popularity,
        all policies that can act on it are played.
    """
    from latentbandits.learning.logs.users import numbered_as_model

    files = read_files(path)
    model, catalogue = load_files(files, str(path))
    if part(model, "encoder") is not None:
        raise ValueError(
            f"{path} takes features with every request, which these logs do not have: compare its "
            "policy with others by `latentbandits evaluate`"
        )
    recommended = notes_of(files, path).get("recommended_policy", POPULARITY)
    known, features = numbered_as_model(model, catalogue, kept)
    learned = Learned(model, features, summary_of(known).action_counts)
    return judge_policies(
        learned,
        known,
        numbered_as_model(model, catalogue, held_out)[0],
        playing=Playing(seed=seed, progress=Silent() if progress is None else progress),
        policies=() if recommended == POPULARITY else (recommended,),
    )


def saved_and_loaded(learned: Learned, catalogue: Catalogue) -> Learned:
    """Return the model after it was written to a folder and read again.

    `catalogue` belongs to the model of all users, but the actions get the features of `learned`:
    features learned from all users would give away the held-out ones.
    """
    features = None if catalogue.features is None else learned.features
    own = Catalogue(catalogue.ids, catalogue.names, features)
    model, again = load_files(model_files(learned.model, own), "the model")
    assert again is not None
    return replace(
        learned, model=model, features=learned.features if features is None else again.features
    )


class Session(NamedTuple):
    """The length and the offers of a session in a log."""

    rounds: int
    replacement: bool  # whether an action can be chosen again


def typical_session(log: LogSummary, of_round: int = 1) -> Session:
    """Return the typical session of a log, whose rounds show `of_round` actions each.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> table = {"u": [1] * 6 + [2] * 6, "a": list("abcdef") * 2, "r": [0, 1] * 6}
    >>> typical_session(summary_of(read_log(table, "u", "a", "r")))
    Session(rounds=2, replacement=False)
    """
    rounds = log.n_events / log.n_users / of_round
    replacement = of_round > 1 or log.n_duplicates > RARE * log.n_events
    if not replacement:
        rounds = min(rounds, float(np.count_nonzero(log.action_counts) // USED_UP))
    return Session(round(min(max(rounds, 1), MOST_SIMULATED)), replacement)


@dataclass(frozen=True, eq=False)
class _Sessions:
    """Typical sessions with users drawn from the model.

    A large catalogue offers sets of actions as replay does, in which actions are rarely repeated.
    """

    learned: Learned
    contexts: FloatArray | None
    typical: Session
    playing: Playing
    more: Mapping[str, Any]  # further arguments of `simulate` and `tune`

    @classmethod
    def of(cls, learned: Learned, log: Log, typical: Session, playing: Playing) -> _Sessions:
        """Return the sessions of a log."""
        contexts, replacement = None, typical.replacement
        if learned.features is not None:
            known = learned.features[learned.counts > 0]
            if replacement or log.features is not None or len(known) > MOST_SHOWN:
                contexts, replacement = learned.features[offered_sets(log, playing)], True
            else:
                contexts = known[None]
        more = {"replacement": replacement, **_shown(playing)}
        return cls(learned, contexts, typical, playing, more)

    def compared(self, policies: Mapping[str, AnyPolicy]) -> Simulated:
        """Play each policy (`tune`).

        A policy that `tune` drops early has played fewer users, who may not be representative. So
        its regret is the winner's, over all users, plus the difference over the users that both
        played.
        """
        if len(policies) < 2:
            return NOT_SIMULATED
        rounds = self.typical.rounds
        tuning = tune(
            self.learned.model, rounds, self.contexts, list(policies), seed=self.playing.seed,
            effort=EFFORT, progress=self.playing.progress, **self.more,
        )  # fmt: skip
        behind = {row.policy: row.behind for row in tuning.table}
        rewards = self._played(policies, min(FIRST_ROUNDS, rounds))
        level = float(rewards[POPULARITY].mean())
        # There is no share to lose where popularity earns nothing.
        lost = {name: 1 - float(rewards[name].mean()) / level for name in policies if level > 0}
        return Simulated(
            paired_regrets(tuning.table), behind, lost, rounds, bool(self.more["replacement"])
        )

    def gain(self, policy: AnyPolicy) -> Estimate:
        """Return the policy's lead over popularity in a round's reward."""
        rewards = self._played({"policy": policy}, self.typical.rounds)
        return Estimate.from_values(rewards["policy"] - rewards[POPULARITY])

    def _played(self, policies: Mapping[str, AnyPolicy], rounds: int) -> dict[str, FloatArray]:
        """Return every user's mean reward in the first rounds, of the policies and popularity."""
        users = UsersOfModel(self.learned.model, self.contexts)
        played = simulate(
            {**policies, POPULARITY: build(POPULARITY, Inputs(users.model))},
            users,
            n_runs=_SIMULATED_USERS,
            horizon=rounds,
            seed=self.playing.seed,
            **self.more,
        )
        return {name: played[name].rewards for name in (*policies, POPULARITY)}


def paired_regrets(table: Sequence[TunedPolicy]) -> dict[str, Estimate]:
    """Return the winner's regret plus each candidate's paired difference from it.

    The standard error takes the two parts as independent.

    >>> won = TunedPolicy("mIDS", Estimate(1.8, 0.06), Estimate(0.0, 0.0), users=480, stages=2)
    >>> out = TunedPolicy("mmTS", Estimate(1.7, 0.11), Estimate(0.3, 0.08), users=160, stages=1)
    >>> {name: round(regret.mean, 3) for name, regret in paired_regrets([won, out]).items()}
    {'mIDS': 1.8, 'mmTS': 2.1}
    """
    best = table[0].regret
    return {
        row.policy: Estimate(
            best.mean + row.behind.mean, float(np.hypot(best.stderr, row.behind.stderr))
        )
        for row in table
    }


def value_of_state(learned: Learned, log: Log, playing: Playing = SINGLE_ACTIONS) -> float:
    """Return the gain per round of knowing the state: E max_a mu(s, a) - max_a E mu(s, a).

    The maximum is over all actions of a model of arms; of a large catalogue it is over the actions
    that a round of replay offers, averaged over users. For lists, it is the value of the best list
    less the value of the actions that are best on average.
    """
    rewards, prior = learned.rewards(), np.exp(learned.model.log_state_prior[0])
    if learned.features is None:
        sets = np.flatnonzero(learned.counts > 0)[None]
    else:
        sets = offered_sets(log, playing)
    clicks, length = playing.clicks, playing.length
    offered = rewards[:, sets]  # (n_states, n_sets, n_offered)
    best = np.argsort(-np.tensordot(prior, offered, axes=1), axis=1)[:, :length]
    gains = [
        clicks.best_value(of_state, length)
        - clicks.value(np.take_along_axis(of_state, best, axis=1))
        for of_state in offered
    ]
    return float((prior @ np.array(gains)).mean())


def offered_sets(log: Log, playing: Playing) -> IntArray:
    """Return actions that a round of replay may offer, `(n_users, n_offered)`: a set per user."""
    rng = np.random.default_rng(playing.seed)
    lengths = log.lengths
    users = np.flatnonzero(lengths >= replays.SHARE)
    place = rng.random((len(users), playing.offered)) * lengths[users][:, None]
    sets: IntArray = log.actions[log.starts[users][:, None] + place.astype(np.int64)]
    return sets
