"""Play policies on the real rewards of users who were held out.

A round offers some of the user's own rows that were not shown before; the policy picks one and
receives its logged reward. A user plays a third of their rows at most: if all rows were used,
every policy would earn the same in total. The logging policy chose the rows, so replay evaluates
the order in which a policy shows them, not actions that the user was never shown.

Users with few rows play few rounds, in which little can be known about them. So they play once more
after the policy has learned half of their rows: these are later rounds.

A log of lists is replayed list by list (`list_replay.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from latentbandits.learning.assess.list_replay import ListPlayer, ListRounds, best_slots
from latentbandits.learning.backends.backend import AnyLog, summary_of
from latentbandits.learning.logs.rows import Log
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, positive_count
from latentbandits.models.clicks import ClickModel, Each
from latentbandits.models.protocol import with_defaults
from latentbandits.policies.lists import ListDecision, decide_list, update_list
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.report.report import Estimate, Progress, Silent

OFFERED = 10
"""Number of rows that a round offers."""

MOST_ROUNDS = 50
SHARE = 3
"""A user with n rows plays n / SHARE rounds, at most `MOST_ROUNDS`."""

HORIZONS = (10, 20, 50)
"""Rewards are reported as means over rounds 1..H for these H."""

FEWEST_USERS = 30
"""Number of users with at least H rounds that horizon H needs to be reported."""

ENOUGH_ROUNDS, MOST_PASSES = 40_000, 8
"""Users with few rounds play several sessions: at most this many."""

SHORT = 10
"""Later rounds are played too if too few users can play this many rounds."""

MOST_USERS, MOST_USERS_OF_PARTICLES = 2_000, 200
"""Largest numbers of users that play the policies of a model."""

_CHUNK = 512  # sessions that are played together


def most_users(model: Any) -> int:
    """Return the largest number of held-out users that play the policies of a model."""
    return MOST_USERS_OF_PARTICLES if with_defaults(model).is_sampled else MOST_USERS


class Player(Protocol):
    """A policy under replay: it sees the offered actions, not which of them was logged."""

    def start(self, users: IntArray, rng: np.random.Generator) -> None:
        """Begin the sessions of the users with these indices."""

    def choose(self, actions: IntArray, offered: BoolArray) -> IntArray:
        """Return a slot `(n,)` for `actions` (n, m); only slots marked in `offered` may be used."""

    def learn(self, reward: FloatArray) -> None:
        """Receive the rewards `(n,)` of the slots that were chosen last."""


@dataclass(eq=False)
class ScorePlayer:
    """A player that picks the offered action of the largest fixed score; ties at random."""

    scores: FloatArray  # (n_actions,)

    def start(self, users: IntArray, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(self, actions: IntArray, offered: BoolArray) -> IntArray:
        scores = np.where(offered, self.scores[actions], -np.inf)
        ties = scores == scores.max(axis=1, keepdims=True)
        slot: IntArray = np.where(ties, self._rng.random(scores.shape), -1.0).argmax(axis=1)
        return slot

    def learn(self, reward: FloatArray) -> None: ...

    def choose_list(self, actions: IntArray, offered: BoolArray, length: int) -> IntArray:
        return best_slots(self.scores[actions], offered, length, self._rng)

    def learn_list(self, rewards: FloatArray, looked: FloatArray | None) -> None: ...


@dataclass(eq=False)
class PolicyPlayer:
    """A policy of the library.

    `features` are the features of every action; None for a model of arms. Beliefs about users whose
    attributes are known start from `log_prior`: log P(s | z), `(n_users, n_states)`. Lists are
    shown under the click model `clicks`.
    """

    policy: AnyPolicy
    n_actions: int
    features: FloatArray | None = None
    log_prior: FloatArray | None = None
    clicks: ClickModel = field(default_factory=Each)

    def start(self, users: IntArray, rng: np.random.Generator) -> None:
        self._belief: Any = self.policy.init(len(users))
        self._rng = rng
        model = self.policy.model_or_none
        if self.log_prior is None or model is None:
            return
        shift = self.log_prior[users] - model.log_state_prior[:, : self.log_prior.shape[1]]
        self._belief = self.policy.shift_state_prior(self._belief, shift)

    def choose(self, actions: IntArray, offered: BoolArray) -> IntArray:
        eligible = self._see(actions, offered)
        self._decision = self.policy.decide(
            self._belief, self._context, self._rng, eligible=eligible, propensity=False
        )
        chosen = self._decision.action
        if self.features is not None:
            return chosen
        places = (actions == chosen[:, None]) & offered
        if not places.any(axis=1).all():
            raise ValueError("the policy chose an action that is not eligible")
        slot: IntArray = places.argmax(axis=1)
        return slot

    def learn(self, reward: FloatArray) -> None:
        self._belief = self.policy.update(self._belief, self._context, self._decision, reward)

    def choose_list(self, actions: IntArray, offered: BoolArray, length: int) -> IntArray:
        eligible = self._see(actions, offered)
        self._shown: ListDecision = decide_list(
            self.policy, self._belief, self._context, self._rng, length, self.clicks,
            eligible=eligible, propensity=False,
        )  # fmt: skip
        chosen = self._shown.actions
        if self.features is not None:
            return chosen
        slots: IntArray = ((actions[:, None] == chosen[:, :, None]) & offered[:, None]).argmax(2)
        return slots

    def learn_list(self, rewards: FloatArray, looked: FloatArray | None) -> None:
        if looked is None:
            self._belief = update_list(
                self.policy, self._belief, self._context, self._shown, rewards, self.clicks
            )
            return
        for i, decision in enumerate(self._shown.positions):
            last = i == self._shown.length - 1
            self._belief = self.policy.update_position(
                self._belief, self._context, decision, rewards[:, i], last=last,
                looked=looked[:, i],
            )  # fmt: skip

    def _see(self, actions: IntArray, offered: BoolArray) -> BoolArray | None:
        """Set the features of the offered actions, and return the mask of eligible ones."""
        self._context: FloatArray | None = None
        if self.features is not None:
            self._context = self.features[actions]
            return None if offered.all() else offered
        eligible = np.zeros((len(actions), self.n_actions), np.bool_)
        rows = np.broadcast_to(np.arange(len(actions))[:, None], actions.shape)
        eligible[rows[offered], actions[offered]] = True
        return eligible


@dataclass(frozen=True, eq=False)
class Replay:
    """The rewards of every policy, user by user and round by round."""

    rounds: IntArray  # (n_users,): how many each user played
    rewards: dict[str, FloatArray]  # (n_users, most_rounds) each; NaN beyond a user's rounds
    later: Replay | None = None  # the same users after half of their rows were told; None: no need

    @cached_property
    def horizons(self) -> tuple[int, ...]:
        """The horizons that enough users reach; if there is none, the longest one they reach."""
        enough = min(FEWEST_USERS, len(self.rounds))
        horizons = tuple(h for h in HORIZONS if np.count_nonzero(self.rounds >= h) >= enough)
        return horizons or (int(np.sort(self.rounds)[::-1][enough - 1]),)

    def n_users(self, horizon: int) -> int:
        return int(np.count_nonzero(self.rounds >= horizon))

    def by_user(self, policy: str, horizon: int) -> FloatArray:
        """Return the mean reward over rounds 1..horizon of every user with that many rounds."""
        long = self.rounds >= horizon
        means: FloatArray = self.rewards[policy][long, :horizon].mean(axis=1)
        return means

    def reward(self, policy: str, horizon: int) -> Estimate:
        return Estimate.from_values(self.by_user(policy, horizon))

    def difference(self, policy: str, other: str, horizon: int) -> Estimate:
        """Return the lead of `policy` over `other` in mean reward, paired by user."""
        return Estimate.from_values(self.by_user(policy, horizon) - self.by_user(other, horizon))

    def lead(self, policy: str, other: str) -> Estimate:
        """Return the mean lead of `policy` over `other` in a round, over all users' rounds.

        Users with fewer rounds than the longest horizon count with the rounds that they have. So
        the estimate is a ratio of two sums: the users' differences, and their rounds. Later rounds
        stand for the second half of a session, and count as much as the first ones.
        """
        parts = [self] if self.later is None else [self, self.later]
        means, residuals = zip(*(part._gained(policy, other) for part in parts), strict=True)
        stderr = Estimate.from_values(np.mean(residuals, axis=0)).stderr
        return Estimate(float(np.mean(means)), stderr)

    def joined(self, others: Sequence[Replay], policies: Sequence[str]) -> Replay:
        """Return the replay of these and of `other` users, who played some of the policies."""
        parts = (self, *others)
        most = max(int(part.rounds.max()) for part in parts)
        rewards = {
            policy: np.concatenate(
                [
                    np.pad(
                        part.rewards[policy],
                        ((0, 0), (0, most - part.rewards[policy].shape[1])),
                        constant_values=np.nan,
                    )
                    for part in parts
                ]
            )
            for policy in policies
        }
        later = [part.later for part in parts if part.later is not None]
        return Replay(
            np.concatenate([part.rounds for part in parts]),
            rewards,
            later[0].joined(later[1:], policies) if len(later) == len(parts) else None,
        )

    def _gained(self, policy: str, other: str) -> tuple[float, FloatArray]:
        """Return how much more `policy` earns in a round, and each user's part in its error."""
        horizon = self.horizons[-1]
        by_round = self.rewards[policy][:, :horizon] - self.rewards[other][:, :horizon]
        sums, rounds = np.nansum(by_round, axis=1), np.minimum(self.rounds, horizon)
        mean = float(sums.sum() / rounds.sum())
        return mean, (sums - mean * rounds) / rounds.mean()

    def curve(self, policy: str) -> tuple[FloatArray, FloatArray]:
        """Return each round's mean reward and standard error, over users of the longest horizon."""
        horizon = self.horizons[-1]
        rewards = self.rewards[policy][self.rounds >= horizon, :horizon]
        stderr = rewards.std(axis=0, ddof=1) / np.sqrt(len(rewards))
        return rewards.mean(axis=0), stderr

    def rows(self, over: str) -> list[dict[str, Any]]:
        """Return a row per policy and horizon, with the paired difference from policy `over`."""
        rows = []
        for policy in self.rewards:
            for horizon in self.horizons:
                reward, lead = self.reward(policy, horizon), self.difference(policy, over, horizon)
                rows.append(
                    {
                        "policy": policy,
                        "rounds": horizon,
                        "users": self.n_users(horizon),
                        "reward": reward.mean,
                        "stderr": reward.stderr,
                        f"over_{over}": lead.mean,
                        f"over_{over}_stderr": lead.stderr,
                    }
                )
        return rows


def playable_rounds(
    log: Log, most_rounds: int = MOST_ROUNDS, lists: ListRounds | None = None
) -> IntArray:
    """Return how many rounds each user of `log` can play.

    It is a third of the user's rows, `most_rounds` at most. Rounds of `lists` show several rows.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> table = {"u": [1] * 7 + [2] * 2, "a": list("xyxyxyxxy"), "r": [0] * 9}
    >>> playable_rounds(read_log(table, "u", "a", "r"))
    array([2, 0])
    """
    if lists is not None:
        return lists.playable(log, SHARE, most_rounds)
    rounds: IntArray = np.minimum(log.lengths // SHARE, most_rounds)
    return rounds


def passes_for(log: Log, lists: ListRounds | None = None) -> int:
    """Return how often the users of `log` should be played: the less they play, the more often.

    A session's reward depends on the rows that are offered. The mean over several sessions of a
    user varies less, which matters if users or their rows are few.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> table = {"u": [1] * 4 + [2] * 3, "a": list("xyxyxyx"), "r": [0] * 7}
    >>> passes_for(read_log(table, "u", "a", "r"))
    8
    """
    rounds = max(playable_rounds(log, lists=lists).sum(), 1)
    return int(np.clip(ENOUGH_ROUNDS // rounds, 1, MOST_PASSES))


@dataclass(frozen=True)
class Playing:
    """The way in which policies are played on held-out users.

    Args:
        lists: what rounds of a log of lists show; None: a round shows one action.
        passes: how often each user is played; None: the fewer users there are, the more often.
        seed: random seed.
        progress: called after each policy.
    """

    lists: ListRounds | None = None
    passes: int | None = None
    seed: int = 0
    progress: Progress = field(default_factory=Silent)

    @property
    def length(self) -> int:
        """The number of actions that a round shows."""
        return 1 if self.lists is None else self.lists.length

    @property
    def clicks(self) -> ClickModel:
        """The click model of what a round shows."""
        return Each() if self.lists is None else self.lists.clicks

    @property
    def offered(self) -> int:
        """The number of actions that a round offers."""
        return OFFERED + self.length - 1

    def clicks_for(self, policy: AnyPolicy) -> ClickModel | None:
        """Return the click model under which a policy shows lists; None if it cannot."""
        return Each() if self.lists is None else self.lists.clicks_for(policy)

    def enough(self, log: Log) -> bool:
        """Return whether two users or more can be played, so that differences have an error."""
        return int(np.count_nonzero(playable_rounds(log, lists=self.lists))) >= 2

    def within(self, log: Log) -> Playing:
        """Return the same for rows of `log` that are numbered as separate actions."""
        if self.lists is None:
            return self
        return replace(self, lists=replace(self.lists, same=self.lists.kind(log)))

    def replay(self, players: Mapping[str, Player], log: Log) -> Replay:
        """Play policies on the users of a log, in later rounds too if sessions are short."""
        passes = passes_for(log, self.lists) if self.passes is None else self.passes
        return replay(
            players, log, passes=passes, later=True, lists=self.lists, seed=self.seed,
            progress=self.progress,
        )  # fmt: skip


SINGLE_ACTIONS = Playing()
"""Rounds that show one action."""


def replay(
    players: Mapping[str, Player],
    log: Log,
    *,
    offered: int = OFFERED,
    most_rounds: int = MOST_ROUNDS,
    passes: int = 1,
    later: bool = False,
    menus: bool = False,
    lists: ListRounds | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Replay:
    """Play every policy on the users of `log` who have three rows or more.

    Each user has a stream of offers that is the same for all policies: offers differ only where
    the policies have shown different rows before. The results of a policy depend on its name and
    on `seed`, not on the other policies.

    Args:
        players: policies by name.
        log: users that no policy has learned from.
        offered: rows that a round offers; fewer where a user has fewer left.
        most_rounds: the longest session.
        passes: how often each user is played, with other offers. Rewards are means over passes.
        later: also play later rounds, if users have too few rows for `SHORT` rounds: half of a
            user's rows are told to the policy, and it plays a third of the others.
        menus: a round offers the rows of the user's next menu (rows with one number of
            `Log.lists`) in place of a random sample of rows. If each menu has a row for every
            action, actions are offered with replacement.
        lists: what rounds of a log of lists show; None: a round shows one row.
        seed: random seed.
        progress: called after each policy.
    """
    positive_count("offered", offered)
    positive_count("most_rounds", most_rounds)
    positive_count("passes", passes)
    bar = Silent() if progress is None else progress
    given = _Menus.of(log) if menus else None
    rounds = playable_rounds(log, most_rounds, lists)
    if given is not None:
        rounds = np.minimum(rounds, given.n_menus)
    users = np.flatnonzero(rounds)
    if len(users) == 0:
        few = f"{SHARE} rows or more" if lists is None else "rows for two lists"
        raise ValueError(f"no user has {few}: there is nothing to replay")
    users = users[np.argsort(-rounds[users], kind="stable")]  # chunks of about equally many rounds
    size = max(_CHUNK // passes, 1)
    chunks = [users[start : start + size] for start in range(0, len(users), size)]

    def sessions(
        player: Player, users: IntArray, rounds: IntArray, n_told: int, rng: np.random.Generator
    ) -> FloatArray:
        if lists is not None:
            shower = cast(ListPlayer, player)
            return lists.play(shower, log, users, rounds, offered, n_told, rng)
        offers: _Sampled | _NextMenu
        offers = _Sampled(log, users, offered, rng) if given is None else _NextMenu(given, users)
        return _play(player, offers, rounds, log, n_told)

    play = partial(_play_chunks, players, chunks, sessions, passes, seed, bar)
    first = play(rounds, [0] * len(chunks))
    if not later or first.horizons[-1] >= SHORT:
        return first
    left = log.lengths
    n_told = [int(left[chunk].min()) // 2 for chunk in chunks]
    told = np.zeros_like(left)
    for chunk, n in zip(chunks, n_told, strict=True):
        told[chunk] = n
    if lists is None:
        rounds = (left - told) // SHARE
    else:
        rounds = lists.rounds(log, told, SHARE, most_rounds)
    after = play(rounds, n_told)
    return replace(first, later=after) if after.horizons[-1] else first


def _play_chunks(
    players: Mapping[str, Player],
    chunks: Sequence[IntArray],
    sessions: Callable[[Player, IntArray, IntArray, int, np.random.Generator], FloatArray],
    passes: int,
    seed: int,
    bar: Progress,
    rounds: IntArray,
    n_told: Sequence[int],
) -> Replay:
    """Play the users of all chunks, after the policy has learned `n_told` rows of each user.

    All sessions of a chunk's users are played at once.
    """
    users = np.concatenate(chunks)
    rewards = {name: np.full((len(users), int(rounds[users].max())), np.nan) for name in players}
    bar.start("replaying held-out users", len(players) * len(chunks))
    for name, player in players.items():
        done = 0
        for i, (chunk, n) in enumerate(zip(chunks, n_told, strict=True)):
            again = np.tile(chunk, passes)
            player.start(again, np.random.default_rng([seed, i, zlib.crc32(name.encode())]))
            drawn = np.random.default_rng([seed, i])
            played = sessions(player, again, rounds[again], n, drawn)
            earned = played.reshape(passes, len(chunk), -1).mean(axis=0)
            rewards[name][done : done + len(chunk), : earned.shape[1]] = earned
            done += len(chunk)
            bar.advance(1)
    return Replay(rounds[users], rewards)


def _play(
    player: Player,
    offers: _Sampled | _NextMenu,
    rounds: IntArray,
    log: Log,
    n_told: int = 0,
) -> FloatArray:
    """Return the rewards `(n, longest)` of a chunk of users; NaN once a user's rounds are over.

    In the first `n_told` rounds one row is offered, and its reward is told but does not count. A
    user whose rounds are over is offered the last rows again until the chunk ends. Sessions are
    independent, so this does not affect the other users.
    """
    earned = np.full((len(rounds), int(rounds.max())), np.nan)
    everyone = np.arange(len(rounds))
    for t in range(-n_told, earned.shape[1]):
        under_way = rounds > t
        n_offered = 1 if t < 0 else None
        event = offers.draw(under_way)[:, :n_offered]
        slot = player.choose(log.actions[event], offers.mask[:, :n_offered])
        reward = log.rewards[event[everyone, slot]]
        player.learn(reward)
        offers.remove(slot, under_way)
        if t >= 0:
            earned[under_way, t] = reward[under_way]
    return earned


class _Sampled:
    """The rows of each user that were not shown yet: the first `left` entries of `rows`."""

    def __init__(self, log: Log, users: IntArray, offered: int, rng: np.random.Generator) -> None:
        self._left = log.lengths[users]
        places = np.arange(int(self._left.max()))
        # Entries beyond a user's rows are padding; they are never drawn.
        self._rows = log.starts[users][:, None] + np.minimum(places, self._left[:, None] - 1)
        self._slots = min(offered, self._rows.shape[1])
        self._rng = rng
        self._users = np.arange(len(users))
        self.mask: BoolArray = np.ones((len(users), self._slots), np.bool_)

    def draw(self, under_way: BoolArray) -> IntArray:
        """Move a uniform sample without replacement to the front and return it, `(n, slots)`.

        This is a partial Fisher-Yates shuffle, with the same random numbers for every policy.
        """
        uniform = self._rng.random((self._slots, len(self._users)))
        for place in range(self._slots):
            span = self._left - place
            active = under_way & (span > 1)
            other = place + np.where(active, (uniform[place] * span).astype(np.int64), 0)
            mine = self._rows[:, place].copy()
            self._rows[:, place] = self._rows[self._users, other]
            self._rows[self._users, other] = mine
        fresh = np.arange(self._slots) < self._left[:, None]
        self.mask = np.where(under_way[:, None], fresh, self.mask)
        events: IntArray = self._rows[:, : self._slots]
        return events

    def remove(self, slot: IntArray, under_way: BoolArray) -> None:
        """Remove the rows that were shown: the last remaining row replaces each."""
        last = self._left - 1
        rows, users = self._rows, self._users
        rows[users[under_way], slot[under_way]] = rows[users[under_way], last[under_way]]
        self._left = np.where(under_way, last, self._left)


class _Menus(NamedTuple):
    """The menus of a log: consecutive rows of one user with the same number."""

    first: IntArray  # (total,): the first row of each menu
    size: IntArray  # (total,)
    start: IntArray  # (n_users,): each user's first menu
    n_menus: IntArray  # (n_users,)

    @classmethod
    def of(cls, log: Log) -> _Menus:
        if log.lists is None:
            raise ValueError(
                "menus needs a log whose rows have numbers of menus; this one has none"
            )
        begins = np.ones(log.n_events, np.bool_)
        begins[1:] = (np.diff(log.lists) != 0) | (np.diff(log.users) != 0)
        first = np.flatnonzero(begins)
        bounds = np.searchsorted(first, log.starts)
        return cls(first, np.diff(np.append(first, log.n_events)), bounds[:-1], np.diff(bounds))


class _NextMenu:
    """The rows of each user's next menu, in their order."""

    def __init__(self, menus: _Menus, users: IntArray) -> None:
        self._menus = menus
        self._next, self._last = menus.start[users], (menus.start + menus.n_menus - 1)[users]
        spans = zip(self._next, self._last + 1, strict=True)
        self._slots = np.arange(max(int(menus.size[low:high].max()) for low, high in spans))
        self.mask: BoolArray = np.ones((len(users), len(self._slots)), np.bool_)

    def draw(self, under_way: BoolArray) -> IntArray:
        """Return the rows of the next menus, `(n, slots)`; `mask` says which are there."""
        size = self._menus.size[self._next][:, None]
        self.mask = self._slots < size
        events: IntArray = self._menus.first[self._next][:, None]
        return events + np.minimum(self._slots, size - 1)

    def remove(self, slot: IntArray, under_way: BoolArray) -> None:
        """Go on to the next menu."""
        self._next = np.minimum(self._next + under_way, self._last)


def action_averages(log: AnyLog) -> FloatArray:
    """Return the average reward of every action, shrunk towards the average of all.

    (sum + k m) / (count + k), m the mean of all rewards and k = within-action variance over
    between-action variance (method of moments): an action with few rewards counts as average.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> log = read_log({"u": [1, 1, 2, 2], "a": list("xyxy"), "r": [1, 0, 1, 0]}, "u", "a", "r")
    >>> action_averages(log)
    array([1., 0.])
    """
    summary = summary_of(log)
    beyond = np.zeros(log.n_actions - len(summary.action_counts))
    counts: FloatArray = np.append(summary.action_counts.astype(np.float64), beyond)
    sums: FloatArray = np.append(summary.action_sums, beyond)
    squares: FloatArray = np.append(summary.action_squares, beyond)
    overall = summary.rewards.mean
    means = np.divide(sums, counts, out=np.full(log.n_actions, overall), where=counts > 0)
    spare = max(summary.n_events - int(np.count_nonzero(counts)), 1)
    within = float(np.maximum(squares - sums * means, 0.0).sum()) / spare
    # E sum n_a (mean_a - overall)^2 = (A - 1) within + (N - sum n_a^2 / N) between
    n = float(summary.n_events)
    scatter = float(counts @ (means - overall) ** 2)
    surplus = scatter - (np.count_nonzero(counts) - 1) * within
    between = surplus / (n - float(counts @ counts) / n)
    if between <= 0:
        return np.full(log.n_actions, overall)
    k = within / between
    averages: FloatArray = (sums + k * overall) / (counts + k)
    return averages
