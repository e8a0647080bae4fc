"""Sessions in memory: for trying things out and for tests; nothing outlives the process."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from latentbandits.serving.records import (
    VISITORS,
    ActivationRow,
    AuditRow,
    DecisionRow,
    LoggedEvent,
    ModelRow,
    RewardedDecision,
    RewardRow,
    SessionRow,
    SnapshotRow,
)
from latentbandits.serving.stores.differences import as_difference, unneeded, whole
from latentbandits.serving.stores.protocol import LAST
from latentbandits.serving.stores.sql import page

Key = TypeVar("Key")
Value = TypeVar("Value")
_MISSING: Any = object()
_BLOCK = 1_000


class MemoryStore:
    """Dictionaries, and a list of undo operations of the current transaction."""

    durable = False
    shared = False
    node = 0

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._next = 1
        self._sessions: dict[int, SessionRow] = {}
        self._names: dict[str, list[int]] = defaultdict(list)
        self._members: dict[int, list[int]] = defaultdict(list)
        self._decisions: dict[int, DecisionRow] = {}
        self._of_session: dict[int, list[int]] = defaultdict(list)
        self._requests: dict[str, int] = {}
        self._rewards: dict[int, RewardRow] = {}
        self._of_decision: dict[int, list[int]] = defaultdict(list)
        self._reported: dict[str, int] = {}
        self._places: dict[int, int] = {}  # order of an event to its position
        self._stream: list[int] = []  # orders of events; positions count from 1
        self._committed = 0  # position of the last event of a transaction that ended
        self._snapshots: dict[int, SnapshotRow] = {}
        self._models: dict[str, ModelRow] = {}
        self._activations: list[ActivationRow] = []
        self._audit: list[AuditRow] = []
        self._notes: dict[str, bytes] = {}
        self._undo: list[Callable[[], object]] = []

    def begin(self) -> None:
        self._undo.clear()

    def commit(self) -> None:
        self._undo.clear()
        self._committed = len(self._stream)

    def rollback(self) -> None:
        while self._undo:
            self._undo.pop()()

    def close(self) -> None:
        pass

    def log_reader(self) -> MemoryStore:
        return self

    def reserve(self, floor: int) -> range:
        first = max(self._next, floor + 1)
        self._next = first + _BLOCK
        return range(first, self._next)

    def _set(self, table: dict[Key, Value], key: Key, value: Value) -> None:
        before = table.get(key, _MISSING)
        table[key] = value
        if before is _MISSING:
            self._undo.append(lambda: table.pop(key))
        else:
            self._undo.append(lambda: table.__setitem__(key, before))

    def _drop(self, table: dict[Key, Value], key: Key) -> None:
        before = table.pop(key, _MISSING)
        if before is not _MISSING:
            self._undo.append(lambda: table.__setitem__(key, before))

    def _append(self, values: list[Value], value: Value) -> None:
        values.append(value)
        self._undo.append(values.pop)

    def _happened(self, order: int) -> None:
        self._append(self._stream, order)
        self._set(self._places, order, len(self._stream))

    # sessions

    def session(self, key: int) -> SessionRow | None:
        return self._sessions.get(key)

    def session_named(self, name: str) -> SessionRow | None:
        keys = self._names.get(name)
        return self._sessions[keys[-1]] if keys else None

    def root(self, key: int) -> int:
        row = self._sessions.get(key)
        while row is not None and row.merged_into is not None:
            key = row.merged_into
            row = self._sessions.get(key)
        return key

    def add_session(self, row: SessionRow) -> None:
        if row.key in self._sessions:
            raise ValueError(f"there is a session {row.key} already")
        self._append(self._names[row.name], row.key)
        if row.merged_into is not None:
            self._append(self._members[row.merged_into], row.key)
        self._set(self._sessions, row.key, row)

    def put_session(self, row: SessionRow) -> None:
        before = self._sessions[row.key]
        if row.merged_into is not None and before.merged_into is None:
            self._append(self._members[row.merged_into], row.key)
        self._set(self._sessions, row.key, row)

    def touch_sessions(self, rows: Sequence[SessionRow], *, seen: bool = True) -> None:
        for row in rows:
            self._set(self._sessions, row.key, row)

    def generations(self, name: str) -> list[SessionRow]:
        return [self._sessions[key] for key in self._names.get(name, ())]

    def members(self, key: int) -> list[SessionRow]:
        rows = (self._sessions.get(member) for member in self._members.get(key, ()))
        return [row for row in rows if row is not None]

    def open_since(self, limit: int) -> list[SessionRow]:
        rows = [row for row in self._sessions.values() if row.open]
        return sorted(rows, key=lambda row: (-row.seen, -row.key))[:limit]

    def unseen_since(self, time_ms: int, limit: int, *, is_open: bool) -> list[SessionRow]:
        rows = [r for r in self._sessions.values() if r.open is is_open and r.seen < time_ms]
        return sorted(rows, key=lambda row: (row.seen, row.key))[:limit]

    def delete_sessions(self, keys: Sequence[int]) -> None:
        for key in keys:
            row = self._sessions.get(key)
            if row is None:
                continue
            for order in self._of_session.get(key, ()):
                self._delete_decision(order)
            self._drop(self._of_session, key)
            self._drop(self._members, key)
            self._drop(self._snapshots, key)
            remaining = [other for other in self._names[row.name] if other != key]
            self._set(self._names, row.name, remaining)
            if not remaining:
                self._drop(self._names, row.name)
            self._drop(self._sessions, key)
            for name in self.notes(f"{VISITORS}{key}/"):
                self._drop(self._notes, name)

    def _delete_decision(self, order: int) -> None:
        request_id = self._decisions[order].request_id
        if request_id is not None:
            self._drop(self._requests, request_id)
        for reward in self._of_decision.get(order, ()):
            event_id = self._rewards[reward].event_id
            if event_id is not None:
                self._drop(self._reported, event_id)
            self._drop(self._rewards, reward)
        self._drop(self._of_decision, order)
        self._drop(self._decisions, order)

    # decisions and rewards

    def add_decisions(self, rows: Sequence[DecisionRow]) -> None:
        for row in rows:
            self._set(self._decisions, row.order, row)
            self._append(self._of_session[row.session], row.order)
            self._happened(row.order)
            if row.request_id is not None:
                self._set(self._requests, row.request_id, row.order)

    def decision(self, order: int) -> DecisionRow | None:
        return self._decisions.get(order)

    def decision_by_request(self, request_id: str) -> DecisionRow | None:
        return self._decisions.get(self._requests.get(request_id, -1))

    def add_rewards(self, rows: Sequence[RewardRow]) -> None:
        for row in rows:
            self._set(self._rewards, row.order, row)
            self._append(self._of_decision[row.decision], row.order)
            self._happened(row.order)
            if row.event_id is not None:
                self._set(self._reported, row.event_id, row.order)

    def reward_of(self, decision: int) -> RewardRow | None:
        orders = self._of_decision.get(decision)
        return self._rewards[orders[-1]] if orders else None

    def reward_by_event(self, event_id: str) -> RewardRow | None:
        return self._rewards.get(self._reported.get(event_id, -1))

    def applied(
        self,
        key: int,
        *,
        merged: bool = False,
        after: int = -1,
        before: int = LAST,
        limit: int = LAST,
    ) -> list[RewardedDecision]:
        rows = []
        for decision in self._rows(self._tree(key, before) if merged else [key]):
            rewards = [
                self._rewards[order]
                for order in self._of_decision.get(decision.order, ())
                if order < before and self._rewards[order].status == "applied"
            ]
            if rewards and rewards[-1].applies_at > after:
                rows.append((rewards[-1].applies_at, RewardedDecision(decision, rewards[-1])))
        return [row for _, row in sorted(rows, key=lambda pair: pair[0])][:limit]

    def replay_order(
        self, key: int, *, merged: bool, after: tuple[int, int], limit: int
    ) -> list[tuple[int, int]]:
        rewards = (
            self._rewards[order]
            for decision in self._rows(self._tree(key, LAST) if merged else [key])
            for order in self._of_decision.get(decision.order, ())
        )
        pairs = sorted((reward.applies_at, reward.order) for reward in rewards)
        return pairs[bisect_right(pairs, after) :][:limit]

    def counted(self, rewards: Sequence[int]) -> list[RewardedDecision]:
        rows = []
        for reward in map(self._rewards.__getitem__, rewards):
            orders = self._of_decision[reward.decision]
            applied = [order for order in orders if self._rewards[order].status == "applied"]
            if applied and applied[-1] == reward.order:
                rows.append(RewardedDecision(self._decisions[reward.decision], reward))
        return sorted(rows, key=lambda row: row.reward.applies_at if row.reward else 0)

    def latest(self, key: int, limit: int, *, merged: bool = False) -> list[int]:
        rows = self._rows(self._tree(key, LAST) if merged else [key])
        return sorted(row.order for row in rows)[-limit:]

    def history(self, orders: Sequence[int]) -> list[RewardedDecision]:
        rows = (self._decisions.get(order) for order in orders)
        return [RewardedDecision(row, self.reward_of(row.order)) for row in rows if row is not None]

    def _tree(self, key: int, before: int) -> list[int]:
        keys = [key]
        for parent in keys:
            keys += [row.key for row in self.members(parent) if (row.merged_at or 0) < before]
        return keys

    def _rows(self, sessions: Sequence[int]) -> list[DecisionRow]:
        return [self._decisions[o] for key in sessions for o in self._of_session.get(key, ())]

    def unrewarded(self, after: int, before_ms: int, limit: int) -> tuple[list[DecisionRow], int]:
        rows: list[DecisionRow] = []
        for order in islice(self._stream, max(after, 0), max(after, 0) + limit):
            row = self._decisions.get(order)
            if row is not None and row.time >= before_ms:
                break
            after = self._places[order]
            if row is not None and not self._of_decision.get(order):
                rows.append(row)
        return rows, after

    # snapshots

    def snapshot(self, session: int) -> SnapshotRow | None:
        return self._snapshots.get(session)

    def put_snapshot(self, row: SnapshotRow) -> None:
        self._set(self._snapshots, row.session, row)

    def drop_snapshot(self, session: int) -> None:
        self._drop(self._snapshots, session)

    # models

    def put_model(self, row: ModelRow) -> None:
        if row.id not in self._models:
            self._set(self._models, row.id, as_difference(row, self._models.get))

    def model(self, model_id: str) -> ModelRow | None:
        return whole(self._models.get(model_id), self._models.get)

    def prune_models(self, replaced: Mapping[str, int]) -> list[str]:
        oldest = min((row.started for row in self._sessions.values()), default=LAST)
        gone = unneeded({row.id: row.base for row in self._models.values()}, replaced, oldest)
        for model_id in gone:
            self._drop(self._models, model_id)
        return gone

    def model_summaries(self) -> dict[str, tuple[str, bytes]]:
        return {row.id: (row.name, row.summary) for row in self._models.values()}

    def lock_sessions(self, names: Sequence[str], decisions: Sequence[int]) -> None:
        """Do nothing: there is only one process."""

    def lock_activations(self) -> None:
        """Do nothing: there is only one process."""

    def add_activation(self, row: ActivationRow) -> None:
        self._append(self._activations, row)

    def activations(self, after: int = -1) -> list[ActivationRow]:
        return [row for row in self._activations if row.order > after]

    # everything else

    def add_audit(self, row: AuditRow) -> None:
        self._append(self._audit, row)
        self._happened(row.order)

    def audit(self, after: int, limit: int) -> list[AuditRow]:
        return [row for row in self._audit if row.order > after][:limit]

    def note(self, name: str) -> bytes | None:
        return self._notes.get(name)

    def put_note(self, name: str, value: bytes) -> None:
        self._set(self._notes, name, value)

    def notes(self, prefix: str) -> dict[str, bytes]:
        return {name: value for name, value in self._notes.items() if name.startswith(prefix)}

    # the log

    def present(self, orders: Sequence[int]) -> set[int]:
        return {order for order in orders if order in self._decisions}

    def end(self) -> int:
        return self._committed

    def read(
        self, since: int, limit: int, max_bytes: int = 1 << 26, until: int = LAST
    ) -> list[LoggedEvent]:
        return page(islice(self._events_between(since, until), limit), max_bytes)

    def _events_between(self, since: int, until: int) -> Iterator[LoggedEvent]:
        until = min(until, len(self._stream))
        for position, order in enumerate(islice(self._stream, since, until), since + 1):
            reward = self._rewards.get(order)
            decision = self._decisions.get(order if reward is None else reward.decision)
            if decision is not None:
                yield LoggedEvent(
                    position,
                    self._places[decision.order],
                    self._sessions[decision.session].name,
                    decision,
                    reward,
                    self._reward_until(decision.order, until),
                    self._sessions[decision.session].user_features,
                )

    def _reward_until(self, decision: int, position: int) -> RewardRow | None:
        """Return the latest reward of a decision that was committed up to a position."""
        orders = self._of_decision.get(decision, [])
        until = [order for order in orders if self._places[order] <= position]
        return self._rewards[until[-1]] if until else None
