"""Running totals for the page and the metrics, updated with the store's transactions."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import zip_longest
from typing import Any

import msgspec

from latentbandits.evaluation.intervals import SessionMean
from latentbandits.serving.engine.values import RatesView, Second
from latentbandits.serving.errors import Damaged
from latentbandits.serving.records import (
    DecisionRow,
    SessionRow,
    floats,
    rewards_by_position,
    shown_actions,
)
from latentbandits.serving.stores.protocol import LogReader, Store, all_events

_log = logging.getLogger(__name__)
ROUNDS = 50  # first rounds of a session, which have totals of their own
DAYS = 30  # latest days, which have totals of their own
ROUNDING = 1e-13  # a sum of squares this much smaller than its terms is a rounding error
STATISTICS = "statistics/"
SHOWN_AT, CLICKED_AT = "list_shown_", "list_clicked_"
"""Prefixes of the counts of positions of lists, from 1: those shown, and those with a reward."""
KEPT = 300  # seconds whose counts are kept
_DAY_MS = 86_400_000
_AVERAGED = 10
encode_totals = msgspec.msgpack.Encoder().encode


class RoundTotals(msgspec.Struct, array_like=True):
    """Totals of one round over all sessions of a group.

    Each session contributes once, so the terms are independent.
    """

    decisions: int = 0
    identified: int = 0  # decisions whose belief had an entropy
    entropy: float = 0.0
    rewards: int = 0
    reward_sum: float = 0.0
    reward_squares: float = 0.0


class GroupTotals(msgspec.Struct, array_like=True):
    """Totals of all sessions of a group.

    Rewards of one session are correlated, so the standard error of the mean is cluster-robust:
    with S and n the reward sum and count of a session, it needs the sums of S^2, S n and n^2.
    """

    sessions: int = 0  # with at least one reward
    decisions: int = 0
    rewards: int = 0
    reward_sum: float = 0.0
    sums_squared: float = 0.0
    sums_by_counts: float = 0.0
    counts_squared: float = 0.0
    rounds: list[RoundTotals] = msgspec.field(default_factory=list)

    def add_session(self, total: float, count: int) -> None:
        """Add the reward sum and count of a session."""
        self.change_session((0.0, 0), (total, count))

    def change_session(self, before: tuple[float, int], after: tuple[float, int]) -> None:
        """Replace the earlier reward sum and count of a session."""
        (old, had), (total, count) = before, after
        self.sessions += bool(count) - bool(had)
        self.rewards += count - had
        self.reward_sum += total - old
        self.sums_squared += total * total - old * old
        self.sums_by_counts += total * count - old * had
        self.counts_squared += count * count - had * had

    def round(self, number: int) -> RoundTotals | None:
        """Return the totals of a round; None beyond the rounds that are counted."""
        if number > ROUNDS:
            return None
        while len(self.rounds) < number:
            self.rounds.append(RoundTotals())
        return self.rounds[number - 1]

    def session_mean(self) -> SessionMean | None:
        """Return the mean reward and its standard error over sessions; None before any reward.

        The error is unknown (infinite) before a second session, and while all rewards are equal:
        twenty impressions without a click do not say that there will never be one.
        """
        if self.rewards == 0:
            return None
        mean = self.reward_sum / self.rewards
        squares = self.sums_squared - 2 * mean * self.sums_by_counts + mean**2 * self.counts_squared
        if self.sessions < 2 or squares <= ROUNDING * self.sums_squared:
            return SessionMean(mean, math.inf, self.sessions)
        spread = max(squares, 0.0) * self.sessions / (self.sessions - 1)
        return SessionMean(mean, math.sqrt(spread) / self.rewards, self.sessions)


class Tally(msgspec.Struct, array_like=True):
    """Decisions and rewards of one policy on one model.

    Some of the rewards were predicted before they were learned; if the model is right, these
    rewards minus their predictions are martingale differences, and the variance of their sum is
    the sum of their squares.
    """

    decisions: int = 0
    rewards: int = 0
    reward_sum: float = 0.0
    predictions: int = 0
    predicted_sum: float = 0.0
    received_sum: float = 0.0  # of the rewards that were predicted
    error_squares: float = 0.0  # of these rewards minus their predictions


class Statistics(msgspec.Struct):
    """Totals since the store began."""

    groups: dict[str, GroupTotals] = msgspec.field(default_factory=dict, name="arms")
    tallies: dict[str, Tally] = msgspec.field(default_factory=dict)  # by "policy model"
    shares: dict[str, list[float]] = msgspec.field(default_factory=dict)  # by model
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    days: dict[str, dict[int, GroupTotals]] = msgspec.field(default_factory=dict)
    """By group and day: the sessions that began on this day, counted since 1970 (UTC)."""
    days_from: int = 0
    """Sessions that began before this time have no day: their first rewards were not counted."""

    def group(self, group: str) -> GroupTotals:
        """Return the totals of a group, which is added where it is new."""
        totals = self.groups.get(group)
        return self.groups.setdefault(group, GroupTotals()) if totals is None else totals

    def tally(self, policy: str, model: str) -> Tally:
        """Return the tally of a policy on a model, which is added where it is new."""
        tally = self.tallies.get(name := f"{policy} {model}")
        return self.tallies.setdefault(name, Tally()) if tally is None else tally

    def count(self, name: str, times: int = 1) -> None:
        """Add to one of the counts."""
        self.counts[name] = self.counts.get(name, 0) + times

    def decided(self, row: DecisionRow, probabilities: Sequence[float]) -> None:
        """Count a decision; `probabilities` are the session's P(s)."""
        totals = self.group(row.group)
        totals.decisions += 1
        self.tally(row.policy, row.model).decisions += 1
        self.count("decisions")
        if row.click_model is not None:
            self.count("lists")
            for position in range(1, len(shown_actions(row)) + 1):
                self.count(f"{SHOWN_AT}{position}")
        one = totals.round(row.round)
        if one is not None:
            one.decisions += 1
            if len(probabilities) > 1:
                one.identified += 1
                one.entropy += entropy(probabilities)

    def session_decided(
        self, session: SessionRow, row: DecisionRow, probabilities: Sequence[float]
    ) -> None:
        """Count a decision; `session` is the session before the decision."""
        states = probabilities if len(probabilities) > 1 else []
        self.move_share(session.model, floats(session.probabilities), states)
        self.decided(row, probabilities)
        if session.rounds == 0:
            self.count("started")

    def left(self, session: SessionRow) -> None:
        """Take the state probabilities of a session out of the shares."""
        self.move_share(session.model, floats(session.probabilities), [])

    def clicked(self, rewards: Sequence[float | None], before: Sequence[float | None] = ()) -> None:
        """Count positions of a list with a reward above 0, unless they had one `before`."""
        for position, (new, old) in enumerate(zip_longest(rewards, before), 1):
            if (new or 0.0) > 0 and not (old or 0.0) > 0:
                self.count(f"{CLICKED_AT}{position}")

    def merged(self, into: SessionRow, other: SessionRow) -> None:
        """Count two sessions as one."""
        self.left(other)
        both = into.reward_sum + other.reward_sum, into.rewards + other.rewards
        self.earned(other, (0.0, 0))
        self.earned(into, both)
        self.count("merged")

    def rewarded(
        self,
        session: SessionRow,
        row: DecisionRow,
        value: float,
        replaced: float | None = None,
        predicted: float | None = None,
    ) -> None:
        """Count a reward of the decision `row`; `session` is the session before the reward.

        `replaced` is the decision's earlier reward, which this one replaces; `predicted` is the
        expected reward, where it is known.
        """
        more = 0 if replaced is not None else 1
        old = replaced or 0.0
        self.earned(session, (session.reward_sum + value - old, session.rewards + more))
        tally = self.tally(row.policy, row.model)
        tally.rewards += more
        tally.reward_sum += value - old
        if predicted is not None:
            tally.predictions += 1
            tally.predicted_sum += predicted
            tally.received_sum += value
            tally.error_squares += (value - predicted) ** 2
        self.count("applied" if more else "replaced")
        one = self.group(session.group).round(row.round)
        if one is not None:
            one.rewards += more
            one.reward_sum += value - old
            one.reward_squares += value * value - old * old

    def earned(self, session: SessionRow, after: tuple[float, int]) -> None:
        """Count rewards (sum, number) in the session's group and, if it is recent, its first day.

        `session` is the session before the rewards.
        """
        before = session.reward_sum, session.rewards
        self.group(session.group).change_session(before, after)
        days, day = self.days.setdefault(session.group, {}), session.started // _DAY_MS
        if session.started < self.days_from:
            return
        totals = days.get(day)
        if totals is None:
            latest = max(days, default=day)
            if day <= latest - DAYS:
                return
            for old in [one for one in days if one <= day - DAYS]:
                del days[old]
            totals = days[day] = GroupTotals()
        totals.change_session(before, after)

    def move_share(self, model: str, before: Sequence[float], after: Sequence[float]) -> None:
        """Update the totals for changed state probabilities of a session.

        `before` is empty for a new session, `after` for one that has ended.
        """
        n = max(len(before), len(after))
        if n < 2:
            return
        shares = self.shares.setdefault(model, [])
        shares.extend([0.0] * (n - len(shares)))  # the policy of a group may have one state more
        for i, p in enumerate(before):
            shares[i] -= p
        for i, p in enumerate(after):
            shares[i] += p


def entropy(probabilities: Iterable[float]) -> float:
    """Return the entropy in bits.

    >>> entropy([0.5, 0.5])
    1.0
    """
    return -sum(p * math.log2(p) for p in probabilities if p > 0)


def combined(parts: Sequence[Statistics]) -> Statistics:
    """Return the totals of several processes that share a store: to be shown, not continued."""
    return reduce(_sum, parts)


def _sum(one: Any, other: Any) -> Any:
    """Return the sum of two totals: number by number, whatever they are made of."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, msgspec.Struct):
        pairs = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
        return type(one)(*(_sum(*pair) for pair in pairs))
    if isinstance(one, dict):
        return {name: _sum(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list):
        return [_sum(*pair) for pair in zip_longest(one, other)]
    return one + other


class Rates:
    """Count decisions and rewards in each second of the last minutes."""

    def __init__(self) -> None:
        self._started = int(time.time())
        self._seconds: deque[list[int]] = deque(maxlen=KEPT)  # [second, decisions, rewards]

    def count(self, decisions: int = 0, rewards: int = 0) -> None:
        """Count decisions and rewards of the present second."""
        now = int(time.time())
        if not self._seconds or self._seconds[-1][0] != now:
            self._seconds.append([now, 0, 0])
        self._seconds[-1][1] += decisions
        self._seconds[-1][2] += rewards

    def view(self) -> RatesView:
        """Return the rates of the last ten whole seconds, and the counts of each second."""
        now = int(time.time())
        span = max(1, min(_AVERAGED, now - self._started))
        whole = [second for second in self._seconds if now - span <= second[0] < now]
        return RatesView(
            sum(second[1] for second in whole) / span,
            sum(second[2] for second in whole) / span,
            [Second(*second) for second in self._seconds if second[0] > now - KEPT],
        )


def decode_totals(data: bytes) -> Statistics:
    """Return the totals that `encode_totals` wrote, or an earlier version as JSON."""
    if data.startswith(b"{"):
        return msgspec.json.decode(data, type=Statistics)
    return msgspec.msgpack.decode(data, type=Statistics)


def read_totals(store: Store) -> Statistics:
    """Return the totals of this process; recompute them from its log if the note is damaged."""
    try:
        kept = store.note(f"{STATISTICS}{store.node}")
        if kept is not None:
            totals = decode_totals(kept)
            if not totals.days and totals.counts.get("applied"):  # written before days were counted
                totals.days_from = int(time.time() * 1000)
            return totals
    except (Damaged, msgspec.DecodeError) as error:
        _log.warning("the totals are damaged and computed anew from the log: %s", error)
    if store.shared:
        return Statistics()  # the log also holds the other processes' totals
    reader = store.log_reader()
    try:
        return computed_totals(store, reader)
    finally:
        reader.close()


def computed_totals(store: Store, reader: LogReader) -> Statistics:
    """Return the totals of all decisions, rewards and sessions that the store still has."""
    totals = Statistics()
    sessions: dict[int, SessionRow] = {}  # what is known of each session so far
    for event in all_events(reader, 0, reader.end()):
        row, reward = event.decision, event.reward
        if reward is None:
            if row.session not in sessions:  # as far as totals need it
                begun = row.time
                sessions[row.session] = SessionRow(
                    row.session, "", row.group, row.model, 0, begun, begun
                )
                totals.count("started")
            totals.decided(row, floats(row.probabilities))
        elif reward.status == "late":
            totals.count("late")
        elif event.counts:
            known = sessions[row.session]
            totals.rewarded(known, row, reward.value)
            sessions[row.session] = msgspec.structs.replace(
                known, rewards=known.rewards + 1, reward_sum=known.reward_sum + reward.value
            )
            if row.click_model is not None:
                totals.clicked(rewards_by_position(row, reward))
    for key in sessions:
        session = store.session(key)
        if session is None:
            continue
        if session.open:
            totals.move_share(session.model, [], floats(session.probabilities))
        else:
            totals.count("expired" if session.merged_into is None else "merged")
    return totals
