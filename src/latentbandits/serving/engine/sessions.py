"""Sessions under way: how they are found, kept in memory and saved, and the effects of time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from latentbandits.models.attributes.parts import part
from latentbandits.policies.registry import AUTO
from latentbandits.serving.engine.models import Library, Memory
from latentbandits.serving.engine.open_session import Live, check_same_user, encode_user, never
from latentbandits.serving.engine.restoring import Restoring
from latentbandits.serving.engine.statistics import Statistics
from latentbandits.serving.errors import Invalid
from latentbandits.serving.records import ActivationRow, DecisionRow, SessionRow
from latentbandits.serving.settings import (
    MAIN,
    TRIAL,
    TRIAL_SHARE,
    EngineSettings,
    Group,
    group_of,
)
from latentbandits.serving.stores.protocol import Store

_ON_TRIAL = Group(TRIAL, AUTO, TRIAL_SHARE)
_OVERHEAD = 600  # bytes per session in the cache, without its belief


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
    """Sessions by key and by name; those that a transaction has put here leave if it is undone.

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

    def clear(self) -> None:
        """Forget all sessions."""
        self._sessions.clear()
        self._keys.clear()
        self._changed.clear()
        self._bytes = 0

    def get(self, key: int) -> Live | None:
        """Return a session, if it is here."""
        return self._sessions.get(key)

    def key_of(self, name: str) -> int | None:
        """Return the key of the open session of this name, if it is known."""
        return self._keys.get(name)

    def name(self, name: str, key: int) -> None:
        """Remember that the open session of this name, or of this other name, has this key."""
        if len(self._keys) > 4 * self._capacity:
            self._keys.clear()
        self._keys[name] = key

    def put(self, live: Live) -> None:
        """Keep a session as the one that was used last; those used longest ago may leave."""
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
            old_key, old = next(iter(sessions.items()))
            self._pop(old_key)
            self._keys.pop(old.row.name, None)

    def remove(self, key: int) -> None:
        """Take a session out."""
        self._pop(key)

    def remove_where(self, stale: Callable[[SessionRow], bool]) -> None:
        """Take out, between transactions, all sessions whose rows are stale."""
        for live in list(self._sessions.values()):
            if stale(live.row):
                self._pop(live.row.key)
                self._keys.pop(live.row.name, None)

    def forget_name(self, name: str) -> None:
        """Have the name looked up in the store the next time."""
        self._keys.pop(name, None)

    def committed(self) -> None:
        """Keep the sessions of the transaction."""
        self._changed.clear()

    def rolled_back(self) -> None:
        """Drop the sessions of the transaction: they are read from the store again."""
        for key in self._changed:
            self._pop(key)
        self._changed.clear()
        self._keys.clear()

    def _pop(self, key: int) -> None:
        old = self._sessions.pop(key, None)
        if old is not None:
            self._bytes -= _size(old)


def _size(live: Live) -> int:
    return _OVERHEAD + live.group.belief_bytes


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

    def clear(self) -> None:
        """Forget all beliefs: they will be restored from the store."""
        self._cache.clear()
        self.restoring.clear()

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
            rounds=0,
            rewards=0,
            reward_sum=0.0,
            last_order=key,
            probabilities=b"",
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
        """Return the open session of this name, or of the one it was merged into."""
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
        """Return the open session of this key, or of the one it was merged into; None if it
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
        if cached is not None and cached.learned == row.rewards:
            if cached.row is row:
                self._cache.put(cached)
                return cached
            if cached.fits(row):
                live = cached._replace(row=row)
                self._cache.put(live)
                return live
        return self.restoring.restore(row, cached)

    def able(self, live: Live, row: DecisionRow) -> Live:
        """Return the session on a model that can learn from the decision of `row`, if any can."""
        if not live.served.lacks(row):
            return live
        grown = self.library.grown(live.row.model)
        return live if live.served is grown else self.restoring.on(live, grown)

    def _up_to_date(self, row: SessionRow) -> SessionRow | None:
        """Carry out what time and new models do to a session; None if that ended it."""
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

    def rebuild(self, key: int, seconds: float, interrupted: Callable[[], bool] = never) -> bool:
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
        """Return the time before which a session must have been seen last to have ended by now."""
        return self.clock() - self._ttl_ms

    def end_expired(self, limit: int) -> int:
        """End open sessions whose time is over, at most `limit`; returns how many there were."""
        expired = self.store.unseen_since(self._expired(), limit, is_open=True)
        for row in expired:
            self.end(row, "expired")
        return len(expired)

    # saving

    def save(self, lives: Sequence[Live], *, new: Collection[int] = ()) -> None:
        """Write sessions after a decision or a reward each; those of the keys `new` have no row
        yet.
        """
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
        self._cache.remove(row.key)
        self._cache.forget_name(row.name)
        self.restoring.forget(row.key)
