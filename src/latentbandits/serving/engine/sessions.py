"""Sessions under way: from rows to beliefs, and the effects of time, merges and new models."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from latentbandits.beliefs.encoding import BeliefError, decode, encode
from latentbandits.models.attributes.parts import part
from latentbandits.serving.engine.cache import Cache
from latentbandits.serving.engine.groups import Group, group_of
from latentbandits.serving.engine.ids import OrderSequence
from latentbandits.serving.engine.library import Library, ServedModel
from latentbandits.serving.engine.live import (
    Live,
    check_same_user,
    encode_user,
    first_belief,
    floats,
    has_square_root,
    state_probabilities,
    too_short,
)
from latentbandits.serving.engine.replay import never, replay, replay_until
from latentbandits.serving.engine.reward_range import RewardRange
from latentbandits.serving.engine.statistics import Changes
from latentbandits.serving.engine.upcoming import Upcoming
from latentbandits.serving.errors import Damaged, Invalid
from latentbandits.serving.records import (
    DecisionRow,
    RewardedDecision,
    SessionRow,
    SnapshotRow,
)
from latentbandits.serving.stores.protocol import Store

SLICE = 64  # most rewards that are replayed before a request is answered
_STEP = 8  # rewards that are read at a time in a long replay


class Rebuilding(Exception):  # noqa: N818 - the operation is to be tried again, later
    """A session's replay is long: do it with `Sessions.rebuild`, a little at a time."""

    def __init__(self, key: int) -> None:
        super().__init__(f"session {key} is being rebuilt from its log")
        self.key = key


class Sessions:
    """The open sessions; the beliefs of those last used are kept, the others restored.

    A belief is restored from the session's snapshot and the rewards that came after it. Where
    `deferring` is set, a replay of more than SLICE rewards raises Rebuilding instead.
    """

    deferring = False

    def __init__(
        self,
        store: Store,
        library: Library,
        orders: OrderSequence,
        clock: Callable[[], int],
        changes: Changes,
        *,
        ttl_ms: int,
        groups: Sequence[Group],
        salt: bytes,
        capacity: int,
        capacity_bytes: int,
    ) -> None:
        self._store = store
        self._library = library
        self._orders = orders
        self._clock = clock
        self._changes = changes
        self._ttl_ms = ttl_ms
        self._seen_ms = min(1000, ttl_ms // 100)  # resolution of the time a session was seen
        self._groups = groups
        self._salt = salt
        self._cache = Cache(capacity, capacity_bytes)
        self._partial: dict[int, Live] = {}  # sessions whose replay is under way
        self._upcoming = Upcoming(store)  # of those
        self._short: dict[int, int] = {}  # last order of sessions whose log lacks rewards

    def __len__(self) -> int:
        return len(self._cache)

    def clear(self) -> None:
        """Forget all beliefs: they will be restored from the store."""
        self._cache.clear()
        self._partial.clear()
        self._upcoming.clear()

    def committed(self) -> None:
        """Keep the changes of the transaction."""
        self._cache.committed()

    def rolled_back(self, *, certain: bool) -> None:
        """Undo the changes of the transaction; `certain`: nothing of it was committed."""
        self._cache.rolled_back(certain=certain)

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
        activation = self._library.active
        group = group_of(name, self._salt, self._groups)
        key = self._orders.next()
        now = self._clock()
        row = SessionRow(
            key=key,
            name=name,
            group=group,
            model=activation.model,
            activation=activation.order,
            started=now,
            seen=now,
            rounds=0,
            rewards=0,
            reward_sum=0.0,
            last_order=key,
            probabilities=b"",
            user_features=None if user is None else encode_user(user),
        )
        if user is not None:
            self._check_user(activation.model, user)
        return self._fresh(row)

    def _check_user(self, model: str, user: Mapping[str, Any]) -> None:
        """Refuse attributes that the model's gate does not know; without one, all are logged."""
        gate = part(self._library.served(model).model, "gate")
        if gate is not None:
            try:
                gate.check(user)
            except ValueError as error:
                raise Invalid(str(error)) from None

    def _fresh(self, row: SessionRow, served: ServedModel | None = None) -> Live:
        served = served or self._library.served(row.model)
        group = served.of_group(row.group)
        belief = first_belief(group.policy, row)
        return Live(row, served, group, belief, state_probabilities(group.policy, belief)[0])

    def find(self, name: str) -> Live | None:
        """Return the open session of this name, or of the one it was merged into."""
        key = self._cache.key_of(name)
        if key is None or self._store.shared:
            row = self._store.session_named(name)
            if row is None:
                return None
            key = row.key
        live = self.get(key)
        if live is not None:
            self._cache.name(name, live.row.key)
        return live

    def get(self, key: int) -> Live | None:
        """Return the open session of this key, or of the one it was merged into; None if it
        ended.
        """
        cached = self._cache.get(key)
        row = cached.row if cached is not None and not self._store.shared else self._row(key)
        if row is None:
            return None
        while row.merged_into is not None:
            root = self._row(self._store.root(row.key))
            if root is None:
                return None
            row = root
        current = self._up_to_date(row)
        return None if current is None else self._believing(current)

    def _row(self, key: int) -> SessionRow | None:
        return self._store.session(key)

    def _up_to_date(self, row: SessionRow) -> SessionRow | None:
        """Carry out what time and new models do to a session; None if that ended it."""
        if not row.open:
            return None
        if self._clock() - row.seen > self._ttl_ms:
            self.end(row, "expired")
            return None
        if row.activation == self._library.active.order:
            return row
        model = row.model
        before = ""  # the model that was active before
        for activation in self._library.activations:
            if activation.order > row.activation:
                if activation.mode == "extended" and model == before:
                    model = activation.model
                if activation.mode == "restarted":
                    self.end(row, "restarted")
                    return None
                if activation.mode == "migrated":
                    model = activation.model
            before = activation.model
        if model == row.model:
            return row
        self._changes.move_share(row.model, floats(row.probabilities), [])
        moved = msgspec.structs.replace(
            row, model=model, activation=self._library.active.order, probabilities=b""
        )
        self._store.put_session(moved)
        # The cached row is stale, and a transaction may commit before the replay is complete.
        self._cache.remove(row.key)
        return moved

    # beliefs

    def _believing(self, row: SessionRow) -> Live:
        start = self._nearest(row)
        if start.learned == row.rewards:
            live = start if start.row is row else start.with_row(row)
            self._cache.put(live)
            return live
        if self.deferring and row.rewards - start.learned > SLICE:
            if self._short.get(row.key) == row.last_order:
                raise too_short(row)
            self._partial[row.key] = start
            raise Rebuilding(row.key)
        rows = self._missing(row, start)
        if start.learned + len(rows) != row.rewards and start.learned:
            start = self._fresh(row)  # another process changed rewards that this belief holds
            rows = self._missing(row, start)
        grown = self._grown_for(start, rows)
        if grown is not None:
            start, rows = grown, self._missing(row, grown)
        live = self._learned(start.with_row(row), rows)
        if live.learned != row.rewards:
            raise too_short(row)
        self._cache.put(live)
        return live

    def _nearest(self, row: SessionRow) -> Live:
        """Return the belief from which the least is to be replayed."""
        for candidate in (self._partial.get(row.key), self._cache.get(row.key)):
            if candidate is not None and candidate.fits(row) and candidate.learned <= row.rewards:
                return candidate
        fresh = self._fresh(row)
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
                return _decoded(self._fresh(row, grown), snapshot)._replace(played_new=True)
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

    def _learned(
        self, start: Live, rows: Sequence[RewardedDecision], stop: Callable[[], bool] = never
    ) -> Live:
        """Return the session after these rewards, or those before the replay was stopped."""
        served = start.served
        belief, n = replay_until(stop, start.group, served.id, served.space, rows, start.belief)
        rows = rows[:n]
        last = rows[-1].reward if rows else None
        learned_to = start.learned_to if last is None else last.applies_at
        states = state_probabilities(start.policy, belief)[0]
        played = [row.decision for row in rows]
        learned = start.learned + len(rows)
        return start.with_belief(start.row, belief, states, learned, learned_to, played)

    def _grown_for(self, live: Live, rows: Sequence[RewardedDecision]) -> Live | None:
        """Return the session's beginning on its grown model, where `rows` need that."""
        if not any(live.served.lacks(row.decision) for row in rows):
            return None
        grown = self._library.grown(live.row.model)
        same = len(grown.space.new) == len(live.served.space.new)
        return None if same else self._fresh(live.row, grown)

    def on(self, live: Live, served: ServedModel) -> Live:
        """Return a session whose belief is one of `served`: its model, grown or not."""
        if live.served is served:
            return live
        row, fresh = live.row, self._fresh(live.row, served)
        if row.rewards == 0:
            return fresh
        if self.deferring and row.rewards > SLICE:
            self._partial[row.key] = fresh
            raise Rebuilding(row.key)
        rebuilt = self._learned(fresh, self._missing(row, fresh))
        if rebuilt.learned != row.rewards:
            raise too_short(row)
        self._cache.put(rebuilt)
        return rebuilt

    def reward_range(self, live: Live | None, row: DecisionRow) -> RewardRange:
        """Return the range of the session's model; of the decision's, if the session ended."""
        served = self._library.served(row.model) if live is None else live.served
        return served.rewards

    def able(self, live: Live, row: DecisionRow) -> Live:
        """Return the session on a model that can learn from the decision of `row`, if any can."""
        if not live.served.lacks(row):
            return live
        return self.on(live, self._library.grown(live.row.model))

    def rebuild(self, key: int, seconds: float, interrupted: Callable[[], bool] = never) -> bool:
        """Continue the replay of a session; return whether it is complete.

        It goes on for some seconds, or until it is `interrupted`, but learns one reward at least.
        """
        row = self._row(key)
        current = None if row is None or row.merged_into is not None else self._up_to_date(row)
        if current is None:
            self._partial.pop(key, None)
            self._upcoming.forget(key)
            return True
        live = self._nearest(current).with_row(current)
        end = time.perf_counter() + seconds

        def stop() -> bool:
            return interrupted() or time.perf_counter() > end

        while rows := self._upcoming.next(current, live.learned_to, _STEP):
            grown = self._grown_for(live, rows)
            if grown is not None:
                live = grown
                continue
            live = self._learned(live, rows, stop)
            if stop():
                self._partial[key] = live
                return False
        self._upcoming.forget(key)
        self._partial.pop(key, None)
        if live.learned == current.rewards:
            self._cache.put(live)
            self.snapshot(live)
        else:
            self._short[key] = current.last_order
        return True

    def snapshot(self, live: Live) -> None:
        """Keep this belief in the store, so that it need not be replayed.

        The belief of a grown model is kept only where the session needs that model: a snapshot
        that is read under it then says that it does.
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

    def together(self, into: Live, other: Live, row: SessionRow) -> Live | None:
        """Return the belief of two sessions merged as `row`; None where it must be replayed.

        Where order does not matter, the rewards of the session that has fewer are added to the
        belief of the other. A square root of a covariance depends on the order, and with it the
        draws of a decision: there those rewards must be later than the others, as in a replay.
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
        if not later and has_square_root(large.belief):
            return None
        belief = replay(large.group, large.served.id, large.served.space, rows, large.belief)
        return large.with_belief(
            row,
            belief,
            state_probabilities(large.policy, belief)[0],
            into.learned + other.learned,
            max(into.learned_to, other.learned_to),
            [row.decision for row in rows],
        )

    # saving

    def save(self, lives: Sequence[Live], *, new: Collection[int] = ()) -> None:
        """Write sessions after a decision or a reward each; those of the keys `new` have no row
        yet.
        """
        seen: list[SessionRow] = []
        seen_before: list[SessionRow] = []
        for live in lives:
            row = live.row
            if row.key in new:
                self._store.add_session(row)
            else:
                before = self._cache.get(row.key)
                same = before is not None and before.row.seen == row.seen
                (seen_before if same else seen).append(row)
            self._cache.name(row.name, row.key)
            self._cache.put(live)
        if seen:
            self._store.touch_sessions(seen)
        if seen_before:
            self._store.touch_sessions(seen_before, seen=False)

    def seen(self, row: SessionRow, now: int) -> int:
        """Return the time at which a session that is used `now` was last seen, to the second.

        A session that is used again at once keeps its time, so that the index of sessions by time
        need not be written.
        """
        return row.seen if 0 <= now - row.seen < self._seen_ms else now

    def replace(self, live: Live) -> None:
        """Save a session all of whose columns may have changed."""
        self._store.put_session(live.row)
        self._cache.put(live)

    def end(self, row: SessionRow, why: str) -> None:
        """Close a session: its log stays, its name may begin anew."""
        self._changes.count(why)
        self._changes.move_share(row.model, floats(row.probabilities), [])
        self._store.put_session(msgspec.structs.replace(row, open=False, probabilities=b""))
        self._store.drop_snapshot(row.key)
        self.drop(row)

    def drop(self, row: SessionRow) -> None:
        """Take a session out of the cache."""
        self._cache.remove(row.key)
        self._cache.forget_name(row.name)
        self._partial.pop(row.key, None)
        self._upcoming.forget(row.key)


def _decoded(fresh: Live, snapshot: SnapshotRow) -> Live:
    belief = decode(fresh.policy, snapshot.belief)
    states = state_probabilities(fresh.policy, belief)[0]
    return fresh.with_belief(fresh.row, belief, states, snapshot.learned, snapshot.learned_to)
