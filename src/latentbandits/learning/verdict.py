"""Decide from held-out users' rewards whether the model is worth using, and with which policy.

Replay (`replay.py`) has real rewards but is noisy: it separates bad policies from good, but not two
good ones. Simulation from the model has little noise, but assumes that the model is right. So the
recommended policy is the best under simulation among those that are not more than two paired
standard errors below the best in replay. Of policies that are almost as good as that, the one with
the largest reward in the first rounds is taken: users may leave early, and the model may be wrong
about later gains. A policy that loses reward to exploration in its first rounds is left out if
there is another one.

Replay plays the model that was learned without the held-out users. Simulation plays the model of
all users, which is the one that is written. The two models differ little, but a policy that
explores little can do well on one of them and badly on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from latentbandits.environments.from_model import UsersOfModel
from latentbandits.learning import replay as replays
from latentbandits.learning import user_hash
from latentbandits.learning.engines.engine import AnyLog, summary_of
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs import Log
from latentbandits.learning.one_state import one_state_model
from latentbandits.learning.replay import Player, PolicyPlayer, Replay, ScorePlayer, playable_rounds
from latentbandits.learning.side.rows import rows_as_actions
from latentbandits.models.checks import IntArray
from latentbandits.models.composed.particle_model import ParticleModel
from latentbandits.policies.greedy import mmGreedy
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import Inputs, build
from latentbandits.report.estimate import Estimate
from latentbandits.report.progress import Progress, Silent
from latentbandits.simulation.simulate import simulate
from latentbandits.simulation.tune import Candidate, least_exploring, tune

Verdict = Literal["helps", "no difference", "harms"]

POPULARITY = "popularity"
FOLD_IN = "fold-in"

CANDIDATES = {
    "arms": (
        "mmGreedy", "mIDS", "mmBayesUCB(quantile=0.6)", "mmBayesUCB(quantile=0.7)",
        "mmBayesUCB(quantile=0.9)", "mmTS", "mTS", "mUCB",
    ),
    "context": (
        "mmGreedy", "mmBayesUCB(quantile=0.7)", "mmBayesUCB(quantile=0.9)", "mmTS", "mTS",
    ),
    "particles": ("mmGreedy", "mTS"),
}  # fmt: skip
"""Policies on the model that are played; one of them is recommended. mmIDS is left out: its
decisions cost twenty times as much as those of mIDS, and mmBayesUCB earns as much."""

UNJUDGED = "mmGreedy"
"""The policy that is recommended if nothing could be replayed or simulated."""

EFFORT = 0.4
"""Number of users to play, as a share of those of a full `tune`."""

SIMULATED_ROUNDS = 100
"""Rounds that users drawn from the model play, to rank the policies that replay does not veto."""

ALIKE = 0.06
"""Relative excess over the least simulated regret that a policy with better first rounds may
have."""

FIRST_ROUNDS, MOST_LOST = 10, 0.04
"""A policy that under simulation loses a larger share of popularity's reward in the first rounds
is not recommended if there is another one. The tolerated true loss is 8%, and simulated losses
are too small: on click problems, true losses were up to 4 points above simulated ones of 6%."""

_FIRST_USERS = 1_000  # simulated users for the loss in the first rounds

MOST_USERS = 2_000
MOST_USERS_OF_PARTICLES = 200
"""Largest numbers of users that are played. Beliefs of a particle model are slow, so fewer users
play, and simulation is left out for it."""

CLEAR = 2.0
"""Paired standard errors beyond which a difference counts."""

CAVEAT = (
    "The held-out rows were chosen by whoever produced the log: replay says how well a policy "
    "orders what users were shown, not what it would earn on actions that nobody was shown."
)


@dataclass(frozen=True, eq=False)
class Simulated:
    """Users drawn from the model; empty where nothing was simulated."""

    regret: Mapping[str, Estimate]  # over SIMULATED_ROUNDS
    behind: Mapping[str, Estimate]  # regret less the least one, paired by user
    lost: Mapping[str, float]  # loss in the first rounds, as a share of popularity's reward


NOT_SIMULATED = Simulated({}, {}, {})


@dataclass(frozen=True, eq=False)
class Judgement:
    """The outcome of replay and simulation; `report()` is its form in report.json."""

    replay: Replay
    candidates: tuple[str, ...]  # policies on the model that can be recommended
    simulated: Simulated
    value_of_state: float  # gain per round of knowing the state over the best average action

    @property
    def horizon(self) -> int:
        return self.replay.horizons[-1]

    @property
    def best(self) -> str:
        """The candidate, or popularity, with the largest reward in replay."""
        names = (*self.candidates, POPULARITY)
        return max(names, key=lambda name: self.replay.reward(name, self.horizon).mean)

    @property
    def admitted(self) -> tuple[str, ...]:
        """The candidates that replay does not veto: not clearly below the best."""
        return tuple(
            name
            for name in self.candidates
            if not _clearly_below(self.replay.difference(name, self.best, self.horizon))
        )

    @property
    def recommended(self) -> str:
        """The policy with the least regret under simulation among those that replay admits.

        Policies whose first rounds are clearly below popularity, in replay or under simulation,
        are left out if others remain. Of those whose regret is within `ALIKE` of the least, those
        with the smallest loss in their first rounds are left, rounded to a percent of popularity's
        reward; of these, `tune`'s rule takes the best, or one that explores less.
        """
        if not self.admitted:
            return POPULARITY
        steady = [name for name in self.admitted if not self._falls_short(name)] or self.admitted
        cheap = [name for name in steady if self.simulated.lost.get(name, 0.0) <= MOST_LOST]
        return self._best_of(cheap or steady)

    def _falls_short(self, name: str) -> bool:
        """Return whether the policy is clearly below popularity in replay at some horizon."""
        return any(
            _clearly_below(self.replay.difference(name, POPULARITY, h))
            for h in self.replay.horizons
        )

    def _best_of(self, names: Sequence[str]) -> str:
        behind, lost = self.simulated.behind, self.simulated.lost
        known = [name for name in names if name in behind]
        if not known:
            return max(names, key=lambda name: self.replay.reward(name, self.horizon).mean)
        first = min(known, key=lambda name: behind[name].mean)
        most = behind[first].mean + ALIKE * self.simulated.regret[first].mean
        close = [name for name in known if behind[name].mean <= most]
        percent = {name: round(lost.get(name, 0.0), 2) for name in close}
        calm = [name for name in close if percent[name] == min(percent.values())]
        return least_exploring({name: self.simulated.regret[name].mean for name in calm})

    @property
    def judged(self) -> str:
        """The policy that the verdict is about: the recommended one, else the model's best."""
        if self.recommended != POPULARITY:
            return self.recommended
        return max(self.candidates, key=lambda name: self.replay.reward(name, self.horizon).mean)

    @property
    def verdict(self) -> Verdict:
        lead = self.replay.difference(self.judged, POPULARITY, self.horizon)
        if _clearly_below(lead):
            return "harms"
        return "helps" if lead.mean > CLEAR * lead.stderr else "no difference"

    @property
    def sentence(self) -> str:
        """The verdict as a sentence."""
        name, horizon = self.judged, self.horizon
        lead = self.replay.difference(name, POPULARITY, horizon)
        where = f"rounds 1-{horizon} of {self.replay.n_users(horizon):,} held-out users"
        compared = f"{name} earns {lead:+} a round compared with showing the best average action"
        if self.verdict == "helps":
            return f"The model helps: {compared} ({where}). Use {self.recommended}."
        if self.verdict == "harms":
            return (
                f"The model harms: even its best policy loses; {compared} ({where}). Use "
                f"{self.recommended}, or learn from more data."
            )
        return (
            f"No measurable difference: {compared} ({where}). {self.recommended} costs nothing "
            "that replay can see."
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
            "admitted": list(self.admitted),
            "horizon": self.horizon,
            "replay": self.replay.rows(POPULARITY),
            "curves": curves,
            "simulated": simulated,
            "simulated_rounds": SIMULATED_ROUNDS,
            "value_of_state": self.value_of_state,
            "offered": replays.OFFERED,
            "caveat": CAVEAT,
        }


def unjudged(
    learned: Learned, *, seed: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
    """Return the report for the case that nothing could be replayed.

    The recommended policy is the winner of `tune` on users drawn from the model, if the features of
    its actions are known.
    """
    model, recommended = learned.model, UNJUDGED
    policies = model_policies(Inputs(model, horizon=SIMULATED_ROUNDS, items=learned.features))
    known = learned.features is not None or not model.n_features
    if known and policies and not isinstance(model, ParticleModel):
        recommended = tune(
            model, SIMULATED_ROUNDS, learned.features, list(policies), seed=seed,
            offered=replays.OFFERED, effort=EFFORT, progress=progress,
        ).winner  # fmt: skip
    return {
        "verdict": "no difference",
        "sentence": "Nothing could be replayed: fewer than two held-out users have three rows.",
        "recommended_policy": recommended,
        "admitted": [],
        "horizon": 0,
        "replay": [],
        "curves": [],
        "simulated": [],
        "simulated_rounds": SIMULATED_ROUNDS,
        "value_of_state": None,
        "offered": replays.OFFERED,
        "caveat": CAVEAT,
    }


def judge_policies(
    learned: Learned,
    kept: AnyLog,
    held_out: Log,
    *,
    written: Learned | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Judgement | None:
    """Replay the policies of the registry that can act on the model, and the baselines.

    Args:
        learned: the model learned from the users of `kept` alone.
        kept: the users that the model and the baselines are learned from.
        held_out: the users that are played.
        written: the model of all users, from which users are simulated; None: `learned`.
        seed: of all randomness.
        progress: called after each policy.

    Returns:
        None if fewer than two users have three rows or more, so that differences have no error.
    """
    bar = Silent() if progress is None else progress
    deciding = learned if written is None else written
    log = held_out
    if log.features is None:
        log = held_out.of_events(learned.counts[held_out.actions] > 0)
    if np.count_nonzero(playable_rounds(log)) < 2:
        return None
    particles = isinstance(learned.model, ParticleModel)
    most = MOST_USERS_OF_PARTICLES if particles else MOST_USERS
    if log.n_users > most:
        log = log.of_users(user_hash.sample(log.keys, most, seed))
    popular = replays.action_averages(kept)
    if log.features is not None:  # each row has its own features
        popular = popular[log.actions]
        deciding, _ = rows_as_actions(deciding, log)
        learned, log = rows_as_actions(learned, log)
    summary = summary_of(kept).rewards
    low, high = summary.least, summary.most

    def inputs_of(some: Learned) -> Inputs:
        span = (low, high) if low < high else None
        rounds = replays.MOST_ROUNDS
        return Inputs(some.model, reward_range=span, horizon=rounds, items=some.features)

    inputs = inputs_of(learned)
    on_model = model_policies(inputs)
    players: dict[str, Player] = {
        "uniform": ScorePlayer(np.zeros(log.n_actions)),
        POPULARITY: ScorePlayer(popular),
    }
    alone = one_state_model(learned.model)
    scratch = "TS" if learned.features is None else "LinTS"
    others = {scratch: build(scratch, inputs)} | on_model
    if alone is not None:
        others = {FOLD_IN: mmGreedy(alone)} | others
    players |= {
        name: PolicyPlayer(policy, log.n_actions, learned.features)
        for name, policy in others.items()
    }
    played = replays.replay(players, log, seed=seed, progress=bar)
    value = value_of_state(learned, log, seed)
    before = Judgement(played, tuple(on_model), NOT_SIMULATED, value)
    admitted = {name: build(name, inputs_of(deciding)) for name in before.admitted}
    return replace(before, simulated=_simulate(admitted, deciding, log, seed, bar))


def _simulate(
    policies: Mapping[str, AnyPolicy], learned: Learned, log: Log, seed: int, bar: Progress
) -> Simulated:
    """Play each policy over `SIMULATED_ROUNDS` with users drawn from the model (`tune`).

    A policy that `tune` drops early has played fewer users, who may not be representative. So its
    regret is the winner's, over all users, plus the difference over the users that both played.
    A large catalogue offers sets of actions as replay does.
    """
    if len(policies) < 2 or isinstance(learned.model, ParticleModel):
        return NOT_SIMULATED
    contexts = None if learned.features is None else learned.features[offered_sets(log, seed)]
    tuning = tune(
        learned.model, SIMULATED_ROUNDS, contexts, list(policies), seed=seed, effort=EFFORT,
        progress=bar,
    )  # fmt: skip
    behind = {row.policy: row.behind for row in tuning.table}
    users = UsersOfModel(learned.model, contexts)
    return Simulated(paired_regrets(tuning.table), behind, _lost_first(policies, users, seed))


def _lost_first(
    policies: Mapping[str, AnyPolicy], users: UsersOfModel, seed: int
) -> dict[str, float]:
    """Return each policy's loss in its first rounds, as a share of popularity's reward.

    The result is empty if popularity earns nothing, because there is no share then.
    """
    popular = build(POPULARITY, Inputs(users.model))
    played = simulate(
        {**policies, POPULARITY: popular},
        users,
        n_runs=_FIRST_USERS,
        horizon=FIRST_ROUNDS,
        seed=seed,
    )
    level = played[POPULARITY].reward.mean
    if level <= 0:
        return {}
    return {name: 1 - played[name].reward.mean / level for name in policies}


def paired_regrets(table: Sequence[Candidate]) -> dict[str, Estimate]:
    """Return the winner's regret plus each candidate's paired difference from it.

    The standard error takes the two parts as independent.

    >>> won = Candidate("mIDS", Estimate(1.8, 0.06), Estimate(0.0, 0.0), users=480, stages=2)
    >>> out = Candidate("mmTS", Estimate(1.7, 0.11), Estimate(0.3, 0.08), users=160, stages=1)
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


def model_policies(inputs: Inputs) -> dict[str, AnyPolicy]:
    """Return the candidates that can be built on the model."""
    policies: dict[str, AnyPolicy] = {}
    kind = "arms" if inputs.n_actions is not None else "context"
    if isinstance(inputs.model, ParticleModel):
        kind = "particles"
    for text in CANDIDATES[kind]:
        try:
            policies[text] = build(text, inputs)
        except ValueError:
            continue  # it needs a model of another kind
    return policies


def value_of_state(learned: Learned, log: Log, seed: int = 0) -> float:
    """Return the gain per round of knowing the state: E max_a mu(s, a) - max_a E mu(s, a).

    The maximum is over all actions of a model of arms; of a large catalogue it is over the actions
    that a round of replay offers, averaged over users.
    """
    rewards, prior = learned.rewards(), np.exp(learned.model.log_state_prior[0])
    if learned.features is None:
        sets = np.flatnonzero(learned.counts > 0)[None]
    else:
        sets = offered_sets(log, seed)
    offered = rewards[:, sets]  # (n_states, n_sets, n_offered)
    knowing = prior @ offered.max(axis=2)
    average = np.tensordot(prior, offered, axes=1).max(axis=1)
    return float((knowing - average).mean())


def offered_sets(log: Log, seed: int) -> IntArray:
    """Return actions that a round of replay may offer, `(n_users, OFFERED)`: a set per user."""
    rng = np.random.default_rng(seed)
    lengths = np.diff(log.starts)
    users = np.flatnonzero(lengths >= replays.SHARE)
    place = (rng.random((len(users), replays.OFFERED)) * lengths[users][:, None]).astype(np.int64)
    sets: IntArray = log.actions[log.starts[users][:, None] + place]
    return sets


def _clearly_below(difference: Estimate) -> bool:
    return bool(difference.mean < -CLEAR * difference.stderr)
