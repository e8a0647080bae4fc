"""Decide from held-out users' rewards whether the model is worth using, and with which policy.

Replay (`replay.py`) has real rewards but is noisy: it separates bad policies from good, but not two
good ones. Simulation from the model has little noise, but assumes that the model is right. So the
tried policy is the best one under simulation among the policies that are at most two paired
standard errors below the best in replay. Among almost equally good policies, the one with the
largest reward in the first rounds is chosen: users may leave early, and the model may be wrong
about later gains. A policy that loses reward to exploration in its first rounds is left out if
there is another one.

Popularity is recommended instead where the model earns less in replay, or does not predict held-out
rewards well enough to be acted on (`report.doubts`).

The replayed model is learned like the written one but without the held-out users: it is widened
alike, written and loaded again. Simulation plays the written model, which is learned from all
users. The two models differ little, but a policy that explores little can do well on one of them
and badly on the other.

The policy is chosen on one half of the held-out users; the verdict is about the other half. If
held-out users are few, further users count for the verdict too, played by models that are learned
without them (`fitting.py`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

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
)
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
from latentbandits.simulation.tune import (
    TunedPolicy,
    least_exploring,
    replayed_candidates,
    tune,
)

Verdict = Literal["helps", "harms", "no difference", "cannot tell"]

UNIFORM = "uniform"
POPULARITY = "popularity"

UNJUDGED = "mmGreedy"
"""The policy that is recommended if nothing could be replayed or simulated."""

EFFORT = 0.4
"""Number of users to play, as a share of those of a full `tune`."""

MOST_SIMULATED = 100
"""Users drawn from the model play as many rounds as a user of the log has rows on average, at most
this many: exploration that would pay in longer sessions only is not worth its price."""

UNKNOWN_ROUNDS = 20
"""The rounds of a simulated session if users have too few rows to be replayed."""

RARE = 0.01
"""If at most this share of a log's rows repeat an action of their user, simulated users are shown
no action twice."""

USED_UP = 3
"""They then play at most one round for so many actions: policies that use up all of them end with
the same total."""

MOST_SHOWN = 50
"""Largest number of actions with features that simulated rounds offer all at once."""

ALIKE = 0.06
"""Relative excess over the least simulated regret that a policy with better first rounds may
have."""

FIRST_ROUNDS, MOST_LOST = 10, 0.04
"""A policy that under simulation loses a larger share of popularity's reward in the first rounds
is not recommended if there is another one. The tolerated true loss is 8%, and simulated losses
are too small: on click problems, true losses were up to 4 points above simulated ones of 6%."""

_SIMULATED_USERS = 1_000  # for the loss in the first rounds, and for the gain

MOST_USERS = 2_000
MOST_USERS_OF_PARTICLES = 200
"""Largest numbers of users that are played. Beliefs of a particle model are slow, so fewer users
play, and simulation is left out for it."""

CLEAR = 2.0
"""Paired standard errors beyond which a difference counts."""

LEVEL = 0.95
"""Level of the interval that the verdict depends on."""

TOLERATED, LEAST_TOLERATED = 0.1, 0.01
"""A loss that makes no difference: this share of popularity's lead over uniform choices, and at
least this share of a reward's standard deviation."""

CAVEAT = (
    "The held-out rows were chosen by whoever produced the log: replay says how well a policy "
    "orders what users were shown, not what it would earn on actions that nobody was shown."
)


@dataclass(frozen=True, eq=False)
class Simulated:
    """Users drawn from the model; empty where nothing was simulated."""

    regret: Mapping[str, Estimate]  # over `rounds`
    behind: Mapping[str, Estimate]  # regret less the least one, paired by user
    lost: Mapping[str, float]  # loss in the first rounds, as a share of popularity's reward
    rounds: int = UNKNOWN_ROUNDS
    replacement: bool = True  # whether an action could be chosen again
    gain: Estimate | None = None  # a round, of the policy that is preferred; None: not simulated

    @property
    def no_gain(self) -> bool:
        """Whether the model itself expects no clear gain of the policy over popularity."""
        return self.gain is not None and self.gain.mean <= CLEAR * self.gain.stderr


NOT_SIMULATED = Simulated({}, {}, {})


class Lead(NamedTuple):
    """The reward of a policy minus the reward of popularity, and the resulting verdict."""

    estimate: Estimate
    low: float  # ends of the 95% interval
    high: float
    tolerated: float  # a loss that makes no difference
    n_users: int

    @property
    def verdict(self) -> Verdict:
        """Say what the interval proves; below 30 users it proves nothing.

        >>> Lead(Estimate(0.01, 0.01), -0.01, 0.03, tolerated=0.02, n_users=500).verdict
        'no difference'
        """
        if self.n_users < replays.FEWEST_USERS:
            return "cannot tell"
        if self.low > 0:
            return "helps"
        if self.high < 0:
            return "harms"
        return "no difference" if self.low > -self.tolerated else "cannot tell"

    @property
    def users_needed(self) -> int:
        """The number of users at which this mean would be decided, if errors fall with its root.

        The verdict is then "no difference" or "harms", whichever comes first.

        >>> Lead(Estimate(0.0, 0.1), -0.2, 0.2, tolerated=0.1, n_users=50).users_needed
        200
        """
        mean = self.estimate.mean
        half_width = max(self.high - mean, 0.0)
        decided_by = max(mean + self.tolerated, -mean)
        least = replays.FEWEST_USERS
        if half_width == 0 or decided_by <= 0:
            return least
        return max(least, math.ceil(self.n_users * (half_width / decided_by) ** 2))


@dataclass(frozen=True, eq=False)
class Judgement:
    """The outcome of replay and simulation; `report()` is its form in report.json."""

    replay: Replay
    candidates: tuple[str, ...]  # policies on the model that can be recommended
    simulated: Simulated
    value_of_state: float  # gain per round of knowing the state over the best average action
    reward_sd: float = 0.0  # of a reward of the log
    doubts: tuple[str, ...] = ()  # why predictions of the model are not to be acted on
    choosing: Replay | None = None  # of the users by whom the policy is chosen; None: `replay`
    separate: bool = False  # whether a reward tells about its own action only: arms of one state
    further: tuple[Replay, ...] = ()  # of the judged policy, by models learned without these users
    playing: Playing = SINGLE_ACTIONS

    @property
    def horizon(self) -> int:
        return self.replay.horizons[-1]

    @property
    def _chooser(self) -> Replay:
        return self.replay if self.choosing is None else self.choosing

    @property
    def best(self) -> str:
        """The candidate, or popularity, with the largest reward in replay."""
        return self._largest((*self.candidates, POPULARITY))

    @property
    def admitted(self) -> tuple[str, ...]:
        """The candidates that replay does not veto: not clearly below the best."""
        best, replay = self.best, self._chooser
        return tuple(
            name for name in self.candidates if not _clearly_below(replay.lead(name, best))
        )

    @property
    def preferred(self) -> str:
        """The policy with the least regret under simulation among all that replay admits.

        Policies whose first rounds are clearly below popularity, in replay or under simulation,
        are left out if others remain. Then only policies with a regret within `ALIKE` of the least
        remain, then only policies with the smallest loss in their first rounds, rounded to a
        percent of popularity's reward. Among these `tune`'s rule chooses the best policy, or one
        that explores less.

        If a reward only informs about its action, simulation is not relied on: such a model is
        learned if users do not fall into kinds, or if the log was too small to show kinds. The
        value of exploring is then unknown, and must show in replay.

        If this policy does not clearly gain in simulation, popularity is preferred: replay offers
        few actions, among which states can matter although they share the best action of all.
        """
        return POPULARITY if self.simulated.no_gain else self._favoured

    @property
    def _favoured(self) -> str:
        if not self.admitted:
            return POPULARITY
        if self.separate and UNJUDGED in self.admitted:
            return self._best_proven()
        steady = [name for name in self.admitted if not self._falls_short(name)] or self.admitted
        cheap = [name for name in steady if self.simulated.lost.get(name, 0.0) <= MOST_LOST]
        return self._best_of(cheap or steady)

    @property
    def recommended(self) -> str:
        """The preferred policy if the model has proven itself, else popularity."""
        return POPULARITY if self.why_popularity else self.preferred

    @property
    def why_popularity(self) -> str:
        """The reason why popularity is recommended; empty if a policy on the model is."""
        if self.lead.estimate.mean < 0 or self._favoured == POPULARITY:
            return "the model's policies earn less than the best average action in replay"
        if self.simulated.no_gain:
            return f"in simulation the model itself expects no clear gain ({self.simulated.gain:+})"
        if self.doubts:
            return self.doubts[0]
        return ""

    def _best_proven(self) -> str:
        """The best policy in replay if it is clearly above `UNJUDGED`, which explores least."""
        best = self._largest(self.admitted)
        lead = self._chooser.lead(best, UNJUDGED)
        return best if lead.mean > CLEAR * lead.stderr else UNJUDGED

    def _falls_short(self, name: str) -> bool:
        """Return whether the policy is clearly below popularity in replay at some horizon."""
        replay = self._chooser
        return any(_clearly_below(replay.difference(name, POPULARITY, h)) for h in replay.horizons)

    def _largest(self, names: Sequence[str]) -> str:
        replay = self._chooser
        return max(names, key=lambda name: replay.lead(name, POPULARITY).mean)

    def _best_of(self, names: Sequence[str]) -> str:
        behind, lost = self.simulated.behind, self.simulated.lost
        known = [name for name in names if name in behind]
        if not known:
            return self._largest(names)
        first = min(known, key=lambda name: behind[name].mean)
        most = behind[first].mean + ALIKE * self.simulated.regret[first].mean
        close = [name for name in known if behind[name].mean <= most]
        percent = {name: round(lost.get(name, 0.0), 2) for name in close}
        calm = [name for name in close if percent[name] == min(percent.values())]
        return least_exploring({name: self.simulated.regret[name].mean for name in calm})

    @property
    def judged(self) -> str:
        """The policy that the verdict is about: the preferred one, else the model's best."""
        favoured = self._favoured
        return self._largest(self.candidates) if favoured == POPULARITY else favoured

    @cached_property
    def lead(self) -> Lead:
        """The lead of the judged policy over popularity, with its 95% interval (Student's t)."""
        from scipy.special import stdtrit

        baselines = [name for name in (POPULARITY, UNIFORM) if name in self.replay.rewards]
        replay = self.replay.joined(self.further, [self.judged, *baselines])
        n_users = len(replay.rounds)
        estimate = replay.lead(self.judged, POPULARITY)
        width = float(stdtrit(max(n_users - 1, 1), (1 + LEVEL) / 2)) * estimate.stderr
        tolerated = LEAST_TOLERATED * self.reward_sd
        if UNIFORM in baselines:
            level = replay.lead(POPULARITY, UNIFORM).mean
            tolerated = max(tolerated, TOLERATED * level)
        return Lead(estimate, estimate.mean - width, estimate.mean + width, tolerated, n_users)

    @property
    def verdict(self) -> Verdict:
        """Say what the interval proves; a gain that the model does not expect does not count."""
        verdict = self.lead.verdict
        return "no difference" if verdict == "helps" and self.simulated.no_gain else verdict

    @property
    def sentence(self) -> str:
        """The verdict as a sentence."""
        lead = self.lead
        users = f"{lead.n_users:,} held-out user" + ("" if lead.n_users == 1 else "s")
        one, best = "round", "action"
        if self.playing.lists is not None:
            one, best = "list", f"{self.playing.length} actions"
        later = "" if self.replay.later is None else f" and later {one}s"
        compared = (
            f"{self.judged} earns {lead.estimate:+} a {one} compared with showing the best average "
            f"{best} (95% interval {lead.low:+.3g} to {lead.high:+.3g}; {one}s 1-{self.horizon}"
            f"{later} of {users})"
        )
        use, why = f"Use {self.recommended}", self.why_popularity
        advice = f"{use}: {why}." if why else f"{use}."
        if self.verdict == "helps":
            return f"The model helps: {compared}. {advice}"
        if self.verdict == "harms":
            return f"The model harms: {compared}. Use {self.recommended}, or learn from more data."
        if self.verdict == "no difference":
            if lead.verdict == "helps":
                return f"No difference outside replay, in which {compared}. {advice}"
            return (
                f"No difference: {compared}; a loss of {lead.tolerated:.3g} would not matter. "
                f"{advice}"
            )
        return (
            f"Cannot tell whether the model helps: {compared}; about {lead.users_needed:,} such "
            f"users would be needed. {advice}"
        )

    def report(self) -> dict[str, Any]:
        """Return the judgement as plain data for report.json."""
        curves = []
        for name in self.replay.rewards:
            mean, stderr = self.replay.curve(name)
            curves.append({"policy": name, "reward": mean.tolist(), "stderr": stderr.tolist()})
        simulated = [
            {
                "policy": name,
                "regret": regret.mean,
                "stderr": regret.stderr,
                "lost_first": self.simulated.lost.get(name),
            }
            for name, regret in self.simulated.regret.items()
        ]
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "recommended_policy": self.recommended,
            "why_popularity": self.why_popularity or None,
            "judged_policy": self.judged,
            "lead": {
                "mean": self.lead.estimate.mean,
                "low": self.lead.low,
                "high": self.lead.high,
                "tolerated": self.lead.tolerated,
                "users": self.lead.n_users,
                "users_needed": self.lead.users_needed,
            },
            "admitted": list(self.admitted),
            "horizon": self.horizon,
            "length": None if self.playing.lists is None else self.playing.length,
            "replay": self.replay.rows(POPULARITY),
            "curves": curves,
            "simulated": simulated,
            "simulated_rounds": self.simulated.rounds,
            "simulated_replacement": self.simulated.replacement,
            "simulated_gain": None
            if self.simulated.gain is None
            else {"mean": self.simulated.gain.mean, "stderr": self.simulated.gain.stderr},
            "value_of_state": self.value_of_state,
            "offered": self.playing.offered,
            "caveat": CAVEAT,
        }


TOO_FEW = (
    "fewer than two held-out users have three rows, so that nothing could be replayed; "
    f"{replays.FEWEST_USERS} such users would be needed among the held-out ones"
)
TOO_FEW_LISTS = (
    "fewer than two held-out users have rows for two lists and a choice between actions, so that "
    f"nothing could be replayed; {replays.FEWEST_USERS} such users would be needed among the "
    "held-out ones"
)
"""Reasons why nothing is replayed."""


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
    why = TOO_FEW if playing.lists is None else TOO_FEW_LISTS
    known = learned.features is not None or not model.n_features
    if doubts:
        recommended = POPULARITY
    elif known and policies and not with_defaults(model).is_sampled:
        recommended = tune(
            model, UNKNOWN_ROUNDS, learned.features, list(policies), seed=playing.seed,
            offered=playing.offered, effort=EFFORT, progress=playing.progress, **_shown(playing),
        ).winner  # fmt: skip
    return {
        "verdict": "cannot tell",
        "sentence": (
            f"Cannot tell whether the model helps: {why}. "
            + (f"Use {recommended}: {doubts[0]}." if doubts else f"Use {recommended}.")
        ),
        "recommended_policy": recommended,
        "why_popularity": doubts[0] if doubts else None,
        "judged_policy": None,
        "lead": None,
        "admitted": [],
        "horizon": 0,
        "length": None if playing.lists is None else playing.length,
        "replay": [],
        "curves": [],
        "simulated": [],
        "simulated_rounds": UNKNOWN_ROUNDS,
        "simulated_replacement": True,
        "simulated_gain": None,
        "value_of_state": None,
        "offered": playing.offered,
        "caveat": CAVEAT,
    }


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
        if log.features is None:
            log = log.of_events(self.learned.counts[log.actions] > 0)
        if not self.playing.enough(log):
            return None
        particles = with_defaults(self.learned.model).is_sampled
        most = MOST_USERS_OF_PARTICLES if particles else MOST_USERS
        if log.n_users > most:
            log = log.of_users(user_hash.sample(log.keys, most, self.playing.seed))
        return log

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
    known = np.concatenate([np.ones((log.n_users, 1)), log.attributes], axis=1)
    return log_softmax(known @ gate.weights.T)


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
        seed: random seed.
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
    lengths = np.diff(log.starts)
    users = np.flatnonzero(lengths >= replays.SHARE)
    place = rng.random((len(users), playing.offered)) * lengths[users][:, None]
    sets: IntArray = log.actions[log.starts[users][:, None] + place.astype(np.int64)]
    return sets


def _clearly_below(difference: Estimate) -> bool:
    return bool(difference.mean < -CLEAR * difference.stderr)
