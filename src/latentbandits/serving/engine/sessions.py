"""Sessions under way: their rows and beliefs, kept in memory, restored from the log, and saved."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import msgspec

from latentbandits.beliefs.encoding import BeliefError, decode, encode
from latentbandits.models.attributes.parts import part
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import AUTO
from latentbandits.serving.engine.models import GroupPolicy, Library, Memory, ServedModel
from latentbandits.serving.engine.replay import (
    first_belief,
    moved_to,
    replay_rewards,
    state_probabilities,
)
from latentbandits.serving.engine.statistics import Statistics
from latentbandits.serving.errors import Conflict, Damaged, Invalid
from latentbandits.serving.records import (
    ActivationRow,
    DecisionRow,
    RewardedDecision,
    SessionRow,
    SnapshotRow,
    shown_actions,
)
from latentbandits.serving.settings import (
    MAIN,
    TRIAL,
    TRIAL_SHARE,
    EngineSettings,
    Group,
    group_of,
)
from latentbandits.serving.stores.protocol import LAST, Store

encode_user = msgspec.json.Encoder(order="sorted").encode
UNEXPLAINED = 20.0
"""A session counts as unexplained once its rewards are this many times likelier for a user without
a fixed state: see `likelihood_ratio`."""
_LEAST = 1e-300
_ON_TRIAL = Group(TRIAL, AUTO, TRIAL_SHARE)
_OVERHEAD = 600  # bytes per session in the cache, without its belief
SLICE = 64  # most rewards that are replayed before a request is answered
_STEP = 8  # rewards that are read at a time in a long replay
_PORTION = 10_000  # places that are read at a time


class Live(NamedTuple):
    """A session with its belief, which has learned the first `learned` rewards.

    `served` is the session's model, or the model grown by missing actions.
    """

    row: SessionRow
    served: ServedModel
    group: GroupPolicy
    belief: Any
    probabilities: list[float]
    learned: int = 0
    learned_to: int = -1  # `applies_at` of the last learned reward
    learned_at: int | None = None  # time of the latest decision whose reward was learned
    played_new: bool = False  # some learned rewards are of actions that the model lacks
    ratio: float = 1.0  # product of `likelihood_ratio`; infinite once it reached UNEXPLAINED

    @property
    def policy(self) -> AnyPolicy:
        """The policy of the session's group."""
        return self.group.policy

    def with_belief(
        self,
        row: SessionRow,
        belief: Any,
        probabilities: list[float],
        learned: int,
        learned_to: int,
        played: Sequence[DecisionRow] = (),
    ) -> Live:
        """Return the session with this belief, which learned from the decisions `played` too."""
        new = self.served.space.new
        step = likelihood_ratio(self.group.state_prior, self.probabilities, probabilities)
        ratio = self.ratio * step
        times = [one.time for one in played]
        if self.learned_at is not None:
            times.append(self.learned_at)
        return Live(
            row,
            self.served,
            self.group,
            belief,
            probabilities,
            learned,
            learned_to,
            max(times, default=None),
            self.played_new
            or (bool(new) and any(name in new for one in played for name in shown_actions(one))),
            ratio if ratio < UNEXPLAINED else math.inf,
        )

    def returned(self, time: int) -> Live:
        """Return the session at a decision at this time; after a pause its belief is moved."""
        if self.group.session_gap is None:
            return self
        belief = moved_to(self.group, self.belief, self.learned_at, time)
        if belief is self.belief:
            return self
        states = state_probabilities(self.policy, belief)[0]
        return self._replace(belief=belief, probabilities=states)

    def fits(self, row: SessionRow) -> bool:
        """Return whether learning later rewards turns this belief into the belief of `row`."""
        mine = self.row
        return mine.model == row.model and mine.revision == row.revision


def likelihood_ratio(
    prior: Sequence[float], before: Sequence[float], after: Sequence[float]
) -> float:
    """Return how many times likelier new rewards are for a user without a fixed state.

    That user's state is drawn anew from the `prior` P1(s), which gives the rewards the density
    q = sum_s P1(s) p(r | s). The session's belief gives them p = sum_s P(s) p(r | s). By Bayes'
    rule p(r | s) / p is P(s) `after` the rewards over P(s) `before` them: no density is needed.

    If the model is right, the expectation of q / p is 1 whatever happened before. So the product
    over a session is a nonnegative martingale, and reaches c with probability 1 / c at most
    (Ville's inequality): of all sessions, at most one in twenty reaches UNEXPLAINED.

    An empty prior (a single state, a state that moves, no posterior over states) gives 1.

    >>> likelihood_ratio([0.5, 0.5], [0.9, 0.1], [0.1, 0.9])  # the believed state was wrong
    4.555555555555555
    """
    if not prior or len(prior) != len(before) or len(before) != len(after):
        return 1.0
    return sum(p * a / max(b, _LEAST) for p, b, a in zip(prior, before, after, strict=True))


def check_same_user(row: SessionRow, user: Mapping[str, Any]) -> None:
    """Refuse attributes of the user that differ from the attributes at the session's start."""
    if row.user_features != encode_user(user):
        began = row.user_features.decode() if row.user_features else "none"
        raise Conflict(
            f"session {row.name!r} began with the user_features {began}, which hold for the whole "
            "session: send the same ones, or leave them out"
        )


def _too_short(row: SessionRow) -> Damaged:
    """Return the error for a session whose log does not have as many rewards as its row says."""
    return Damaged(
        f"session {row.name!r} states {row.rewards} rewards, but its log has others: rows of it "
        "are lost or damaged (`latentbandits check` tells more)"
    )


def milliseconds() -> int:
    """Return the time of the clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class OrderSequence:
    """Hands out the store's orders: strictly increasing within a session, never given twice.

    Orders come in blocks that the store reserves, so that they depend on no clock. A block that
    was reserved after a session was locked lies above everything that happened to it before.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = 0
        self._end = 0

    def next(self, floor: int = 0) -> int:
        """Return a number that nobody else has, above `floor`."""
        order = self._next
        if not floor < order < self._end:
            block = self._store.reserve(floor)
            order, self._end = block.start, block.stop
        self._next = order + 1
        return order

    def forget(self) -> None:
        """Give up the block: its reservation may have been rolled back."""
        self._next = self._end = 0


class Cache:
    """Sessions by key and by name; undoing a transaction removes the sessions that it put here.

    Args:
        capacity: largest number of sessions.
        capacity_bytes: bytes that sessions and their models may take, about.
        models: counts the bytes of the sessions' models, without the active model.
    """

    def __init__(self, capacity: int, capacity_bytes: int, models: Memory) -> None:
        self._models = models
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._bytes = 0
        self._sessions: OrderedDict[int, Live] = OrderedDict()
        self._keys: dict[str, int] = {}
        self._changed: set[int] = set()  # sessions that this transaction has put here

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: int) -> Live | None:
        """Return a session, if it is here."""
        return self._sessions.get(key)

    def key_of(self, name: str) -> int | None:
        """Return the key of the open session of this name, if it is known."""
        return self._keys.get(name)

    def name(self, name: str, key: int) -> None:
        """Remember that this name, or other name, belongs to the open session with this key."""
        if len(self._keys) > 4 * self._capacity:
            self._keys.clear()
        self._keys[name] = key

    def put(self, live: Live) -> None:
        """Keep a session as the last used one; the longest unused ones may be dropped."""
        key, sessions = live.row.key, self._sessions
        old = sessions.get(key)
        if old is not live:
            self._changed.add(key)
            sessions[key] = live
            self._bytes += _size(live) - (0 if old is None else _size(old))
        sessions.move_to_end(key)
        while len(sessions) > self._capacity or (
            sessions and self._bytes + self._models.counted > self._capacity_bytes
        ):
            self.forget(next(iter(sessions.values())).row)

    def remove_where(self, stale: Callable[[SessionRow], bool]) -> None:
        """Take out, between transactions, all sessions whose rows are stale."""
        for live in list(self._sessions.values()):
            if stale(live.row):
                self.forget(live.row)

    def forget(self, row: SessionRow) -> None:
        """Take a session out; its name is looked up in the store the next time."""
        self.remove(row.key)
        self._keys.pop(row.name, None)

    def committed(self) -> None:
        """Keep the sessions of the transaction."""
        self._changed.clear()

    def rolled_back(self) -> None:
        """Drop the sessions of the transaction, so that they are read from the store again."""
        for key in self._changed:
            self.remove(key)
        self._changed.clear()
        self._keys.clear()

    def remove(self, key: int) -> None:
        """Take a session out."""
        old = self._sessions.pop(key, None)
        if old is not None:
            self._bytes -= _size(old)


def _size(live: Live) -> int:
    return _OVERHEAD + live.group.belief_bytes


class Rebuilding(Exception):  # noqa: N818 - the operation is to be tried again, later
    """Raised if a session's replay is long: do it with `Restoring.rebuild`, a little at a time."""

    def __init__(self, key: int) -> None:
        super().__init__(f"session {key} is being rebuilt from its log")
        self.key = key


class Restoring:
    """Restores the beliefs of sessions, which `keep` keeps in memory.

    A belief is restored from the session's snapshot and the rewards that came after it. Snapshots
    shorten a replay and can be thrown away at any time: each names its model, its policy and the
    revision of its session. A session is replayed reward by reward, never from sums, whose floats
    would differ from the served ones.

    A long replay never holds up the writer. Where `deferring` is set, a replay of more than SLICE
    rewards raises Rebuilding instead. The operation is rolled back, other requests go on, and the
    session is replayed in slices, one reward at a time while a request waits.
    """

    deferring = False

    def __init__(self, store: Store, library: Library, keep: Callable[[Live], None]) -> None:
        self._store = store
        self._library = library
        self._keep = keep
        # Sessions whose replay is under way, and the rewards that each learns next.
        self._partial: dict[int, tuple[Live, Iterator[RewardedDecision] | None]] = {}
        self._short: dict[int, int] = {}  # last order of sessions whose log lacks rewards

    def forget(self, key: int) -> None:
        """Give up the replay of a session, if one is under way."""
        self._partial.pop(key, None)

    def restore(self, row: SessionRow, cached: Live | None) -> Live:
        """Return the session of `row` with its belief, and keep it; `cached` may be outdated."""
        start = self._nearest(row, cached)
        if start.learned == row.rewards:
            live = start if start.row is row else start._replace(row=row)
            self._keep(live)
            return live
        self._defer_if_long(row, start)
        rows = self._missing(row, start)
        if start.learned + len(rows) != row.rewards and start.learned:
            start = self.fresh(row)  # another process changed rewards that this belief holds
            rows = self._missing(row, start)
        grown = self._grown_for(start, rows)
        if grown is not None:
            start, rows = grown, self._missing(row, grown)
        return self._complete(start._replace(row=row), rows)

    def _defer_if_long(self, row: SessionRow, start: Live) -> None:
        """Raise Rebuilding where too many rewards are to be learned before an answer."""
        if self.deferring and row.rewards - start.learned > SLICE:
            if self._short.get(row.key) == row.last_order:
                raise _too_short(row)
            self._partial[row.key] = start, None
            raise Rebuilding(row.key)

    def _complete(self, start: Live, rows: Sequence[RewardedDecision]) -> Live:
        """Return the session after these rewards, the last ones that it lacks, and keep it."""
        live = self._learned(start, rows)
        if live.learned != live.row.rewards:
            raise _too_short(live.row)
        self._keep(live)
        return live

    def fresh(self, row: SessionRow, served: ServedModel | None = None) -> Live:
        """Return a session before its first reward, on the model of its row or on `served`."""
        served = served or self._library.served(row.model)
        group = served.of_group(row.group)
        belief = first_belief(group.policy, row)
        return Live(row, served, group, belief, state_probabilities(group.policy, belief)[0])

    def replayed(
        self, row: SessionRow, served: ServedModel, rows: Sequence[RewardedDecision]
    ) -> Live:
        """Return a session on `served` after these rewards; it is not kept."""
        return self._learned(self.fresh(row, served), rows)

    def _nearest(self, row: SessionRow, cached: Live | None) -> Live:
        """Return the belief from which the least is to be replayed."""
        partial, _ = self._partial.get(row.key, (None, None))
        for candidate in (partial, cached):
            if candidate is not None and candidate.fits(row) and candidate.learned <= row.rewards:
                return candidate
        fresh = self.fresh(row)
        if row.rewards == 0 or not fresh.group.can_snapshot:
            return fresh
        snapshot = None
        try:
            snapshot = self._store.snapshot(row.key)
            if snapshot is None or not self._is_current(snapshot, row, fresh):
                return fresh
            return _decoded(fresh, snapshot)
        except (BeliefError, Damaged):
            grown = self._library.grown(row.model)
        if snapshot is not None and grown is not fresh.served:
            with suppress(BeliefError):
                return _decoded(self.fresh(row, grown), snapshot)._replace(played_new=True)
        return fresh  # the log can replace the snapshot

    def _is_current(self, snapshot: SnapshotRow, row: SessionRow, fresh: Live) -> bool:
        return (
            snapshot.model == row.model
            and snapshot.policy == fresh.group.text
            and snapshot.revision == row.revision
            and snapshot.learned <= row.rewards
        )

    def _missing(self, row: SessionRow, start: Live) -> list[RewardedDecision]:
        return self._store.applied(row.key, merged=row.members > 0, after=start.learned_to)

    def _learned(self, start: Live, rows: Sequence[RewardedDecision]) -> Live:
        """Return the session after these rewards."""
        belief = replay_rewards(start.group, start.served, rows, start.belief, start.learned_at)
        last = rows[-1].reward if rows else None
        learned_to = start.learned_to if last is None else last.applies_at
        states = state_probabilities(start.policy, belief)[0]
        played = [row.decision for row in rows]
        learned = start.learned + len(rows)
        return start.with_belief(start.row, belief, states, learned, learned_to, played)

    def _grown_for(self, live: Live, rows: Sequence[RewardedDecision]) -> Live | None:
        """Return the session's first belief on its grown model, if `rows` need the grown model."""
        if not any(live.served.lacks(row.decision) for row in rows):
            return None
        grown = self._library.grown(live.row.model)
        same = len(grown.space.new) == len(live.served.space.new)
        return None if same else self.fresh(live.row, grown)

    def on(self, live: Live, served: ServedModel) -> Live:
        """Return the session with a belief on `served`, another model than it has now."""
        row, fresh = live.row, self.fresh(live.row, served)
        if row.rewards == 0:
            return fresh
        self._defer_if_long(row, fresh)
        return self._complete(fresh, self._missing(row, fresh))

    def rebuild(
        self,
        row: SessionRow,
        cached: Live | None,
        seconds: float,
        interrupted: Callable[[], bool] | None = None,
    ) -> bool:
        """Continue the replay of a session; return whether it is complete.

        It goes on for some seconds, or until it is `interrupted`, but learns one reward at least.
        """
        end = time.perf_counter() + seconds
        live, rows = self._partial.get(row.key, (None, None))
        if live is None or rows is None or live.row != row:
            live = self._nearest(row, cached)._replace(row=row)
            rows = self._after(row, live.learned_to)
        self._partial[row.key] = live, None  # where the store fails, they are read again
        for one in rows:
            grown = self._grown_for(live, [one])
            if grown is not None:
                self._partial[row.key] = grown, None
                return False
            live = self._learned(live, [one])
            if (interrupted is not None and interrupted()) or time.perf_counter() > end:
                self._partial[row.key] = live, rows
                return False
        self.forget(row.key)
        if live.learned == row.rewards:
            self._keep(live)
            self.snapshot(live)
        else:
            self._short[row.key] = row.last_order
        return True

    def _after(self, row: SessionRow, learned_to: int) -> Iterator[RewardedDecision]:
        """Yield a session's rewards after the place `learned_to`, in the order of replay.

        To find the next rewards of merged sessions, a store must sort all that remain. So the
        sorted places are read in large portions, and a replay takes time in proportion to its
        length.
        """
        last = learned_to, LAST
        while pairs := self._store.replay_order(
            row.key, merged=row.members > 0, after=last, limit=_PORTION
        ):
            orders = [order for _, order in pairs]
            for begin in range(0, len(orders), _STEP):
                yield from self._store.counted(orders[begin : begin + _STEP])
            last = pairs[-1]

    def snapshot(self, live: Live) -> None:
        """Keep the session's belief in the store, so that its log need not be replayed.

        The belief on a grown model is kept only if the session needs the grown model. A snapshot
        with a belief on the grown model therefore shows that the session needs that model.
        """
        canonical = live.played_new or not live.served.is_grown
        if canonical and live.group.can_snapshot and live.learned == live.row.rewards:
            self._store.put_snapshot(
                SnapshotRow(
                    session=live.row.key,
                    model=live.row.model,
                    policy=live.group.text,
                    revision=live.row.revision,
                    learned=live.learned,
                    learned_to=live.learned_to,
                    belief=encode(live.policy, live.belief),
                )
            )

    def merged(self, into: Live, other: Live, row: SessionRow) -> Live | None:
        """Return the belief of two sessions merged as `row`; None where it must be replayed.

        Where order does not matter, the session with fewer rewards is replayed on top of the other
        session's belief. If random draws depend on the order all the same, the replayed rewards
        must also be the later ones.
        """
        alike = into.served is other.served and into.group.text == other.group.text
        alike = alike and into.row.user_features == other.row.user_features
        if not alike or not into.group.order_free:
            return None
        small, large = sorted((into, other), key=lambda live: (live.learned, -live.learned_to))
        if small.learned > SLICE:
            return None
        rows = self._store.applied(small.row.key, merged=small.row.members > 0)
        later = all(row.reward and row.reward.applies_at > large.learned_to for row in rows)
        if not later and large.group.draws_depend_on_order:
            return None
        belief = replay_rewards(large.group, large.served, rows, large.belief)
        return large.with_belief(
            row,
            belief,
            state_probabilities(large.policy, belief)[0],
            into.learned + other.learned,
            max(into.learned_to, other.learned_to),
            [row.decision for row in rows],
        )


def _decoded(fresh: Live, snapshot: SnapshotRow) -> Live:
    belief = decode(fresh.policy, snapshot.belief)
    states = state_probabilities(fresh.policy, belief)[0]
    return fresh.with_belief(fresh.row, belief, states, snapshot.learned, snapshot.learned_to)


class Sessions:
    """The open sessions: they are found by name or key, end with time, are merged and saved.

    The beliefs of sessions that were used last are kept in memory; `restoring` finds the others.
    """

    def __init__(
        self,
        store: Store,
        library: Library,
        orders: OrderSequence,
        clock: Callable[[], int],
        settings: EngineSettings,
        salt: bytes,
    ) -> None:
        self.store = store
        self.library = library
        self.orders = orders
        self.clock = clock
        self.statistics = Statistics()
        self.settings = settings
        self._ttl_ms = int(settings.session_ttl * 1000)
        self._groups = settings.side_groups()
        self._salt = salt
        capacity_bytes = int(settings.cached_megabytes * 2**20)
        self._cache = Cache(settings.cached_sessions, capacity_bytes, library.memory)
        self._activation = -1  # the latest one that the cached sessions were looked at for
        self.restoring = Restoring(store, library, self._cache.put)

    def __len__(self) -> int:
        return len(self._cache)

    def committed(self) -> None:
        """Keep the changes of the transaction; drop beliefs that a new activation made useless."""
        self._cache.committed()
        if self.library.order != self._activation:
            self._activation = self.library.order
            successor = cache(self.library.successor)  # for sessions that are alike
            self._cache.remove_where(lambda row: successor(row.model, row.activation) != row.model)

    def rolled_back(self) -> None:
        """Forget what the transaction changed."""
        self._cache.rolled_back()

    # finding

    def open(self, name: str, user: Mapping[str, Any] | None = None) -> Live:
        """Return the session of this name, begun anew (but not yet saved) if there is none.

        Conflict if it began with other attributes of the `user`.
        """
        live = self.find(name)
        if live is not None:
            if user is not None:
                check_same_user(live.row, user)
            return live
        group, activation = self._assigned(name)
        key = self.orders.next()
        now = self.clock()
        row = SessionRow(
            key=key,
            name=name,
            group=group,
            model=activation.model,
            activation=activation.order,
            started=now,
            seen=now,
            last_order=key,
            user_features=None if user is None else encode_user(user),
        )
        if user is not None:
            self._check_user(activation.model, user)
        return self.restoring.fresh(row)

    def _assigned(self, name: str) -> tuple[str, ActivationRow]:
        """Return the group of a new session, and the activation whose model it begins with.

        Each trial divides the sessions of the main group anew.
        """
        group, trial = group_of(name, self._salt, self._groups), self.library.trial
        if group != MAIN or trial is None:
            return group, self.library.active
        group = group_of(name, self._salt + trial.model.encode(), (_ON_TRIAL,))
        return group, trial if group == TRIAL else self.library.active

    def _check_user(self, model: str, user: Mapping[str, Any]) -> None:
        """Refuse attributes that the model's gate does not know; without one, all are logged."""
        gate = part(self.library.served(model).model, "gate")
        if gate is not None:
            try:
                gate.check(user)
            except ValueError as error:
                raise Invalid(str(error)) from None

    def find(self, name: str) -> Live | None:
        """Return the open session of this name, or the session that it was merged into."""
        key = self._cache.key_of(name)
        if key is None or self.store.shared:
            row = self.store.session_named(name)
            if row is None:
                return None
            key = row.key
        live = self.get(key)
        if live is not None:
            self._cache.name(name, live.row.key)
        return live

    def get(self, key: int) -> Live | None:
        """Return the open session of this key, or the one that it was merged into; None if it
        ended.
        """
        cached = self._cache.get(key)
        row = (
            cached.row if cached is not None and not self.store.shared else self.store.session(key)
        )
        if row is None:
            return None
        while row.merged_into is not None:
            root = self.store.session(self.store.root(row.key))
            if root is None:
                return None
            row = root
        current = self._up_to_date(row)
        return None if current is None else self._restored(current)

    def _restored(self, row: SessionRow) -> Live:
        """Return the session of `row` with its belief, and keep it."""
        cached = self._cache.get(row.key)
        if cached is not None and cached.learned == row.rewards and cached.fits(row):
            live = cached if cached.row is row else cached._replace(row=row)
            self._cache.put(live)
            return live
        return self.restoring.restore(row, cached)

    def able(self, live: Live, row: DecisionRow) -> Live:
        """Return the session on a model that can learn from the decision `row`, if there is one."""
        if not live.served.lacks(row):
            return live
        grown = self.library.grown(live.row.model)
        return live if live.served is grown else self.restoring.on(live, grown)

    def _up_to_date(self, row: SessionRow) -> SessionRow | None:
        """Apply the passing of time and new models to a session; None if that ended it."""
        if not row.open:
            return None
        if row.seen < self._expired():
            self.end(row, "expired")
            return None
        if row.activation == self.library.order:
            return row
        model = self.library.successor(row.model, row.activation)
        if model is None:
            self.end(row, "restarted")
            return None
        if model == row.model:
            return row
        self.statistics.left(row)
        moved = msgspec.structs.replace(
            row, model=model, activation=self.library.active.order, probabilities=b""
        )
        self.store.put_session(moved)
        # The cached row is stale, and a transaction may commit before the replay is complete.
        self._cache.remove(row.key)
        return moved

    def rebuild(
        self, key: int, seconds: float, interrupted: Callable[[], bool] | None = None
    ) -> bool:
        """Continue the replay of a session as `Restoring.rebuild` does; a session that ended or was
        merged has none to complete.
        """
        row = self.store.session(key)
        current = None if row is None or row.merged_into is not None else self._up_to_date(row)
        if current is None:
            self.restoring.forget(key)
            return True
        return self.restoring.rebuild(current, self._cache.get(key), seconds, interrupted)

    def _expired(self) -> int:
        """Return the time such that sessions last seen before it have ended by now."""
        return self.clock() - self._ttl_ms

    def end_expired(self, limit: int) -> int:
        """End open sessions whose time is over, at most `limit`; returns how many there were."""
        expired = self.store.unseen_since(self._expired(), limit, is_open=True)
        for row in expired:
            self.end(row, "expired")
        return len(expired)

    # saving

    def save(self, lives: Sequence[Live], *, new: Collection[int] = ()) -> None:
        """Write sessions after a decision or a reward each; the ones in `new` have no row yet."""
        known: list[SessionRow] = []
        for live in lives:
            row = live.row
            if row.key in new:
                self.store.add_session(row)
            else:
                known.append(row)
            self._cache.name(row.name, row.key)
            self._cache.put(live)
        if known:
            self.store.touch_sessions(known)

    def replace(self, live: Live) -> None:
        """Save a session all of whose columns may have changed."""
        self.store.put_session(live.row)
        self._cache.put(live)

    def merge(self, kept: Live, merged: Live) -> None:
        """Add the rewards of `merged` to `kept`, and close it; Invalid if either has many users."""
        a, b = kept.row, merged.row
        if kept.group.n_users is not None or merged.group.n_users is not None:
            raise Invalid(
                f"{a.name!r} and {b.name!r} are populations, each with users of its own: merging "
                "them would not merge users, and is refused"
            )
        at = self.orders.next(max(a.last_order, b.last_order))

        self.statistics.merged(a, b)
        row = msgspec.structs.replace(
            a,
            rounds=a.rounds + b.rounds,
            rewards=a.rewards + b.rewards,
            reward_sum=a.reward_sum + b.reward_sum,
            last_order=at,
            seen=self.clock(),
            members=a.members + b.members + 1,
            revision=a.revision + 1,
            user_features=a.user_features or b.user_features,
        )
        together = self.restoring.merged(kept, merged, row)
        self.store.put_session(
            msgspec.structs.replace(
                b, open=False, merged_into=a.key, merged_at=at, probabilities=b""
            )
        )
        self.store.drop_snapshot(b.key)
        self.drop(b)
        if together is None:
            self.store.put_session(row)
            self.store.drop_snapshot(a.key)
            self.drop(a)
        else:
            self.replace(together)
            if self.settings.snapshot_rounds > 0:
                self.restoring.snapshot(together)

    def end(self, row: SessionRow, why: str) -> None:
        """Close a session: its log stays, its name may begin anew."""
        self.statistics.count(why)
        self.statistics.left(row)
        self.store.put_session(msgspec.structs.replace(row, open=False, probabilities=b""))
        self.store.drop_snapshot(row.key)
        self.drop(row)

    def drop(self, row: SessionRow) -> None:
        """Take a session out of the cache."""
        self._cache.forget(row)
        self.restoring.forget(row.key)
