"""Sessions under way: how they are found and saved, and the effects of time and new models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from latentbandits.models.attributes.parts import part
from latentbandits.serving.engine.cache import Cache
from latentbandits.serving.engine.groups import Group, group_of
from latentbandits.serving.engine.ids import OrderSequence
from latentbandits.serving.engine.open_session import (
    Live,
    check_same_user,
    encode_user,
    floats,
)
from latentbandits.serving.engine.replay import never
from latentbandits.serving.engine.restoring import Beliefs
from latentbandits.serving.engine.reward_range import RewardRange
from latentbandits.serving.engine.served_models import Library
from latentbandits.serving.engine.statistics import Changes
from latentbandits.serving.errors import Invalid
from latentbandits.serving.records import (
    DecisionRow,
    SessionRow,
)
from latentbandits.serving.stores.protocol import Store


class Sessions:
    """The open sessions: they are found by name or key, end with time, and are saved.

    `beliefs` restores what they have learned.
    """

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
        self._cache = Cache(capacity, capacity_bytes, library.other_bytes)
        self._activation = -1  # the latest one that the cached sessions were looked at for
        self.beliefs = Beliefs(store, library, self._cache)

    def __len__(self) -> int:
        return len(self._cache)

    def clear(self) -> None:
        """Forget all beliefs: they will be restored from the store."""
        self._cache.clear()
        self.beliefs.clear()

    def committed(self) -> None:
        """Keep the changes of the transaction; drop beliefs that a new activation made useless."""
        self._cache.committed()
        activations = self._library.activations
        if activations and activations[-1].order != self._activation:
            self._activation = activations[-1].order
            successor = cache(self._library.successor)  # for sessions that are alike
            self._cache.remove_where(lambda row: successor(row.model, row.activation) != row.model)

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
        return self.beliefs.fresh(row)

    def _check_user(self, model: str, user: Mapping[str, Any]) -> None:
        """Refuse attributes that the model's gate does not know; without one, all are logged."""
        gate = part(self._library.served(model).model, "gate")
        if gate is not None:
            try:
                gate.check(user)
            except ValueError as error:
                raise Invalid(str(error)) from None

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
        return None if current is None else self.beliefs.restore(current)

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
        model = self._library.successor(row.model, row.activation)
        if model is None:
            self.end(row, "restarted")
            return None
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

    def reward_range(self, live: Live | None, row: DecisionRow) -> RewardRange:
        """Return the range of the session's model; of the decision's, if the session ended."""
        served = self._library.served(row.model) if live is None else live.served
        return served.rewards

    def rebuild(self, key: int, seconds: float, interrupted: Callable[[], bool] = never) -> bool:
        """Continue the replay of a session as `Beliefs.rebuild` does; a session that ended or was
        merged has none to complete.
        """
        row = self._row(key)
        current = None if row is None or row.merged_into is not None else self._up_to_date(row)
        if current is None:
            self.beliefs.forget(key)
            return True
        return self.beliefs.rebuild(current, seconds, interrupted)

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
        self.beliefs.forget(row.key)
