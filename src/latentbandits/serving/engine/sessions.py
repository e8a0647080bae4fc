"""Sessions under way: from rows to beliefs, and what time, merges and new models do to them."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from latentbandits.policies.protocol import AnyPolicy
from latentbandits.serving.engine.library import Library, ServedModel
from latentbandits.serving.engine.orders import Orders
from latentbandits.serving.engine.propensities import group_of
from latentbandits.serving.engine.replay import replay
from latentbandits.serving.engine.statistics import Statistics
from latentbandits.serving.records import SessionRow
from latentbandits.serving.stores.protocol import Store


class Live(NamedTuple):
    """A session with what it believes."""

    row: SessionRow
    served: ServedModel
    policy: AnyPolicy
    belief: Any
    probabilities: list[float]

    def learned(self, row: SessionRow, belief: Any) -> Live:
        return Live(row, self.served, self.policy, belief, _of(self.policy, belief))

    def noted(self, row: SessionRow) -> Live:
        return Live(row, self.served, self.policy, self.belief, self.probabilities)


def _of(policy: AnyPolicy, belief: Any) -> list[float]:
    """P(s) of a session; one certain state where the policy keeps no probabilities."""
    state_probabilities = getattr(policy, "state_probabilities", None)
    return [1.0] if state_probabilities is None else state_probabilities(belief)[0].tolist()


class Sessions:
    """The open sessions; the beliefs of those last used are kept, the others replayed."""

    def __init__(
        self,
        store: Store,
        library: Library,
        orders: Orders,
        clock: Callable[[], int],
        *,
        ttl_ms: int,
        holdout_share: float,
        salt: bytes,
        capacity: int,
    ) -> None:
        self._store = store
        self._library = library
        self._orders = orders
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._holdout_share = holdout_share
        self._salt = salt
        self._capacity = capacity
        self._cache: OrderedDict[int, Live] = OrderedDict()
        self._keys: dict[str, int] = {}
        self.statistics = Statistics()

    def clear(self) -> None:
        self._cache.clear()
        self._keys.clear()

    def __len__(self) -> int:
        return len(self._cache)

    def open(self, name: str) -> Live:
        """The session of this name, begun anew (but not yet saved) if there is none."""
        found = self.find(name)
        if found is not None:
            return found
        activation = self._library.active
        group = group_of(name, self._salt, self._holdout_share)
        key = self._orders.next()
        row = SessionRow(
            key=key,
            name=name,
            group=group,
            model=activation.model,
            activation=activation.order,
            seen=self._clock(),
            rounds=0,
            rewards=0,
            reward_sum=0.0,
            last_order=key,
            probabilities=b"",
        )
        served = self._library.served(row.model)
        policy = served.policies[group]
        belief = policy.init(1)
        return Live(row, served, policy, belief, _of(policy, belief))

    def find(self, name: str) -> Live | None:
        """The open session of this name, or of the one it was merged into."""
        key = self._keys.get(name)
        if key is None or self._store.shared:
            row = self._store.session_named(name)
            if row is None:
                return None
            key = row.key
        found = self.get(key)
        if found is not None:
            if len(self._keys) > 4 * self._capacity:
                self._keys.clear()
            self._keys[name] = found.row.key
        return found

    def get(self, key: int) -> Live | None:
        """The open session of this key, or of the one it was merged into; None if it ended."""
        cached = self._cache.get(key)
        row = cached.row if cached is not None and not self._store.shared else self._read(key)
        if row is None:
            return None
        if row.merged_into is not None:
            return self.get(row.merged_into)
        current = self._up_to_date(row)
        if current is None:
            return None
        return self._believing(current)

    def _read(self, key: int) -> SessionRow | None:
        return self._store.session(key)

    def _up_to_date(self, row: SessionRow) -> SessionRow | None:
        """After time and new models have done to it what they do; None if that ended it."""
        if not row.open:
            return None
        if self._clock() - row.seen > self._ttl_ms:
            self.end(row, "expired")
            return None
        if row.activation == self._library.active.order:
            return row
        model = row.model
        for activation in self._library.activations:
            if activation.order > row.activation:
                if activation.mode == "restarted":
                    self.end(row, "restarted")
                    return None
                if activation.mode == "migrated":
                    model = activation.model
        if model == row.model:
            return row
        self.statistics.move_share(row.model, floats(row.probabilities), [])
        moved = msgspec.structs.replace(
            row, model=model, activation=self._library.active.order, probabilities=b""
        )
        self._store.put_session(moved)
        return moved

    def _believing(self, row: SessionRow) -> Live:
        cached = self._cache.get(row.key)
        if cached is not None and cached.row.model == row.model:
            self._cache.move_to_end(row.key)
            if cached.row.last_order == row.last_order:
                return cached if cached.row is row else cached.noted(row)
            missed = self._store.applied(self.keys(row.key), after=cached.row.last_order)
            if cached.row.rewards + len(missed) == row.rewards:
                return self._learned(row, missed, cached.belief)
        return self._learned(row, self._store.applied(self.keys(row.key)), None)

    def _learned(self, row: SessionRow, rows: Any, belief: Any) -> Live:
        served = self._library.served(row.model)
        policy = served.policies[row.group]
        belief = replay(policy, served.id, served.space, rows, belief)
        live = Live(row, served, policy, belief, _of(policy, belief))
        self._remember(live)
        return live

    def keys(self, key: int, before: int | None = None) -> list[int]:
        """The session and all that were merged into it, or had been `before` an order."""
        keys = [key]
        for member in self._store.members(key):
            assert member.merged_at is not None
            if before is None or member.merged_at < before:
                keys += self.keys(member.key, before)
        return keys

    def save(self, live: Live, *, new: bool = False) -> None:
        if new:
            self._store.put_session(live.row)
        else:
            self._store.touch_session(live.row)
        self._keys[live.row.name] = live.row.key
        self._remember(live)

    def _remember(self, live: Live) -> None:
        self._cache[live.row.key] = live
        self._cache.move_to_end(live.row.key)
        while len(self._cache) > self._capacity:
            _, old = self._cache.popitem(last=False)
            self._keys.pop(old.row.name, None)

    def end(self, row: SessionRow, why: str) -> None:
        """Close a session: its log stays, its name may begin anew."""
        self.statistics.count(why)
        self.statistics.move_share(row.model, floats(row.probabilities), [])
        self._store.put_session(msgspec.structs.replace(row, open=False, probabilities=b""))
        self.drop(row)

    def drop(self, row: SessionRow) -> None:
        self._cache.pop(row.key, None)
        self._keys.pop(row.name, None)


def floats(data: bytes) -> list[float]:
    return array("d", data).tolist()


def as_bytes(values: list[float]) -> bytes:
    return array("d", values).tobytes()
