"""Sessions in memory: for trying things out and for tests; nothing outlives the process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from latentbandits.serving.records import (
    ActivationRow,
    DecisionRow,
    LoggedDecision,
    ModelRow,
    RewardStatus,
    SessionRow,
)

Key = TypeVar("Key")
Value = TypeVar("Value")
_MISSING: Any = object()


class MemoryStore:
    """Dictionaries, and a list of how to undo what the transaction under way has changed."""

    durable = False
    shared = False
    node = 0

    def __init__(self) -> None:
        self._sessions: dict[int, SessionRow] = {}
        self._names: dict[str, list[int]] = defaultdict(list)
        self._decisions: dict[int, DecisionRow] = {}
        self._of_session: dict[int, list[int]] = defaultdict(list)
        self._members: dict[int, list[int]] = defaultdict(list)
        self._requests: dict[str, int] = {}
        self._events: dict[str, int] = {}
        self._models: dict[str, ModelRow] = {}
        self._activations: list[ActivationRow] = []
        self._notes: dict[str, bytes] = {}
        self._undo: list[Callable[[], object]] = []

    def begin(self) -> None:
        self._undo.clear()

    def commit(self) -> None:
        self._undo.clear()

    def rollback(self) -> None:
        while self._undo:
            self._undo.pop()()

    def close(self) -> None:
        pass

    def log_reader(self) -> MemoryStore:
        return self

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

    def session(self, key: int) -> SessionRow | None:
        return self._sessions.get(key)

    def session_named(self, name: str) -> SessionRow | None:
        keys = self._names.get(name)
        return self._sessions[keys[-1]] if keys else None

    def put_session(self, row: SessionRow) -> None:
        before = self._sessions.get(row.key)
        if before is None:
            self._append(self._names[row.name], row.key)
        if row.merged_into is not None and (before is None or before.merged_into is None):
            self._append(self._members[row.merged_into], row.key)
        self._set(self._sessions, row.key, row)

    def touch_session(self, row: SessionRow) -> None:
        self._set(self._sessions, row.key, row)

    def generations(self, name: str) -> list[SessionRow]:
        return [self._sessions[key] for key in self._names.get(name, ())]

    def members(self, key: int) -> list[SessionRow]:
        return [self._sessions[member] for member in self._members.get(key, ())]

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
                decision = self._decisions[order]
                if decision.request_id is not None:
                    self._drop(self._requests, decision.request_id)
                if decision.event_id is not None:
                    self._drop(self._events, decision.event_id)
                self._drop(self._decisions, order)
            self._drop(self._of_session, key)
            self._drop(self._members, key)
            remaining = [other for other in self._names[row.name] if other != key]
            self._set(self._names, row.name, remaining)
            if not remaining:
                self._drop(self._names, row.name)
            self._drop(self._sessions, key)

    def add_decision(self, row: DecisionRow) -> None:
        self._set(self._decisions, row.order, row)
        self._append(self._of_session[row.session], row.order)
        if row.request_id is not None:
            self._set(self._requests, row.request_id, row.order)

    def decision(self, order: int) -> DecisionRow | None:
        return self._decisions.get(order)

    def decision_by_request(self, request_id: str) -> DecisionRow | None:
        return self._decisions.get(self._requests.get(request_id, -1))

    def decision_by_event(self, event_id: str) -> DecisionRow | None:
        return self._decisions.get(self._events.get(event_id, -1))

    def set_reward(
        self, order: int, value: float, at: int, status: RewardStatus, event_id: str | None
    ) -> None:
        row = msgspec.structs.replace(
            self._decisions[order],
            reward=value,
            reward_order=at,
            reward_status=status,
            event_id=event_id,
        )
        self._set(self._decisions, order, row)
        if event_id is not None:
            self._set(self._events, event_id, order)

    def applied(self, sessions: Sequence[int], after: int = -1) -> list[DecisionRow]:
        rows = [
            (row.reward_order, row)
            for row in self._rows(sessions)
            if row.reward_status == "applied"
            and row.reward_order is not None
            and row.reward_order > after
        ]
        return [row for _, row in sorted(rows, key=lambda pair: pair[0])]

    def decisions(self, sessions: Sequence[int], limit: int) -> list[DecisionRow]:
        return sorted(self._rows(sessions), key=lambda row: row.order)[-limit:]

    def _rows(self, sessions: Sequence[int]) -> list[DecisionRow]:
        return [self._decisions[o] for key in sessions for o in self._of_session.get(key, ())]

    def put_model(self, row: ModelRow) -> None:
        if row.id not in self._models:
            self._set(self._models, row.id, row)

    def model(self, model_id: str) -> ModelRow | None:
        return self._models.get(model_id)

    def model_names(self) -> dict[str, str]:
        return {row.id: row.name for row in self._models.values()}

    def add_activation(self, row: ActivationRow) -> None:
        self._append(self._activations, row)

    def activations(self, after: int = -1) -> list[ActivationRow]:
        return [row for row in self._activations if row.order > after]

    def note(self, name: str) -> bytes | None:
        return self._notes.get(name)

    def put_note(self, name: str, value: bytes) -> None:
        self._set(self._notes, name, value)

    def notes(self, prefix: str) -> dict[str, bytes]:
        return {name: value for name, value in self._notes.items() if name.startswith(prefix)}

    def read(self, since: int, limit: int) -> list[LoggedDecision]:
        orders = sorted(order for order in self._decisions if order > since)[:limit]
        rows = [self._decisions[order] for order in orders]
        return [LoggedDecision(self._sessions[row.session].name, row) for row in rows]
