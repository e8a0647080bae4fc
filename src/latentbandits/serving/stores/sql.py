"""What the two SQL stores share: the tables and every statement, written once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from latentbandits.serving.records import (
    ActivationRow,
    DecisionRow,
    LoggedDecision,
    ModelRow,
    RewardStatus,
    SessionRow,
)

Row: TypeAlias = tuple[Any, ...]

MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE sessions (
            key BIGINT PRIMARY KEY, name TEXT NOT NULL, arm TEXT NOT NULL, model TEXT NOT NULL,
            activation BIGINT NOT NULL, seen BIGINT NOT NULL, rounds BIGINT NOT NULL,
            rewards BIGINT NOT NULL, reward_sum DOUBLE PRECISION NOT NULL,
            last_order BIGINT NOT NULL, probabilities BLOB NOT NULL, open SMALLINT NOT NULL,
            merged_into BIGINT, merged_at BIGINT)""",
        "CREATE INDEX sessions_name ON sessions (name, key)",
        "CREATE UNIQUE INDEX sessions_open ON sessions (name) WHERE open = 1",
        "CREATE INDEX sessions_merged ON sessions (merged_into) WHERE merged_into IS NOT NULL",
        """CREATE TABLE decisions (
            id BIGINT PRIMARY KEY, token BIGINT NOT NULL, session BIGINT NOT NULL,
            round BIGINT NOT NULL, model TEXT NOT NULL, arm TEXT NOT NULL, policy TEXT NOT NULL,
            action TEXT NOT NULL, place BIGINT NOT NULL, n_actions BIGINT NOT NULL,
            actions BLOB, features BLOB, state BIGINT NOT NULL, propensity DOUBLE PRECISION,
            propensity_kind TEXT NOT NULL, probabilities BLOB NOT NULL,
            request_id TEXT, fingerprint BLOB, reward DOUBLE PRECISION, reward_order BIGINT,
            reward_status TEXT, event_id TEXT)""",
        "CREATE INDEX decisions_session ON decisions (session)",
        """CREATE UNIQUE INDEX decisions_request ON decisions (request_id)
            WHERE request_id IS NOT NULL""",
        """CREATE UNIQUE INDEX decisions_event ON decisions (event_id)
            WHERE event_id IS NOT NULL""",
        """CREATE TABLE models (id TEXT PRIMARY KEY, name TEXT NOT NULL, files BLOB NOT NULL)""",
        """CREATE TABLE activations (
            id BIGINT PRIMARY KEY, model TEXT NOT NULL, mode TEXT NOT NULL)""",
        "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
    ),
    # Version 2: sessions are found by when they were last seen, to expire and to show them.
    (
        "CREATE INDEX sessions_seen_open ON sessions (seen) WHERE open = 1",
        "CREATE INDEX sessions_seen_closed ON sessions (seen) WHERE open = 0",
    ),
)
SCHEMA_VERSION = len(MIGRATIONS)

_RENAMED = {"order": "id", "index": "place", "group": "arm"}


def _columns(row: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(_RENAMED.get(name, name) for name in row.__struct_fields__)


_SESSION_COLUMNS = _columns(SessionRow)
_DECISION_COLUMNS = _columns(DecisionRow)


def _select(columns: Iterable[str], table: str) -> str:
    return f"SELECT {', '.join(columns)} FROM {table}"


def _places(count: int) -> str:
    return ", ".join("?" * count)


SELECT_SESSION = _select(_SESSION_COLUMNS, "sessions")
SELECT_MODEL = "SELECT id, name, files FROM models WHERE id = ?"
SELECT_DECISION = _select(_DECISION_COLUMNS, "decisions")
SELECT_LOG = (
    _select(["sessions.name", *(f"decisions.{c}" for c in _DECISION_COLUMNS)], "decisions")
    + " JOIN sessions ON sessions.key = decisions.session"
    " WHERE decisions.id > ? AND decisions.id < ? ORDER BY decisions.id LIMIT ?"
)
_PUT_SESSION = (
    f"INSERT INTO sessions ({', '.join(_SESSION_COLUMNS)}) "
    f"VALUES ({_places(len(_SESSION_COLUMNS))}) ON CONFLICT (key) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in _SESSION_COLUMNS[3:])
)
_TOUCH_SESSION = (  # leaves every index but one as it is
    "UPDATE sessions SET seen = ?, rounds = ?, rewards = ?, reward_sum = ?, last_order = ?, "
    "activation = ?, probabilities = ? WHERE key = ?"
)
_ADD_DECISION = (
    f"INSERT INTO decisions ({', '.join(_DECISION_COLUMNS)}) "
    f"VALUES ({_places(len(_DECISION_COLUMNS))})"
)
_OPEN = _SESSION_COLUMNS.index("open")


def session_row(values: Row) -> SessionRow:
    fields = list(values)
    fields[_OPEN] = bool(fields[_OPEN])
    return SessionRow(*fields)


def logged(values: Row) -> LoggedDecision:
    return LoggedDecision(values[0], DecisionRow(*values[1:]))


class SqlStore(ABC):
    """The statements; subclasses give connections, transactions and `_run`."""

    lock_rows = ""  # appended to the SELECT of a session that may be changed next

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement with ? for its values, in the transaction under way."""

    def _one(self, statement: str, values: Sequence[Any]) -> Row | None:
        rows = self._run(statement, values)
        return rows[0] if rows else None

    def session(self, key: int) -> SessionRow | None:
        values = self._one(f"{SELECT_SESSION} WHERE key = ?{self.lock_rows}", (key,))
        return None if values is None else session_row(values)

    def session_named(self, name: str) -> SessionRow | None:
        values = self._one(
            f"{SELECT_SESSION} WHERE name = ? ORDER BY key DESC LIMIT 1{self.lock_rows}", (name,)
        )
        return None if values is None else session_row(values)

    def put_session(self, row: SessionRow) -> None:
        values = list(msgspec.structs.astuple(row))
        values[_OPEN] = int(row.open)
        self._run(_PUT_SESSION, values)

    def touch_session(self, row: SessionRow) -> None:
        self._run(
            _TOUCH_SESSION,
            (row.seen, row.rounds, row.rewards, row.reward_sum, row.last_order, row.activation,
             row.probabilities, row.key),
        )  # fmt: skip

    def generations(self, name: str) -> list[SessionRow]:
        rows = self._run(f"{SELECT_SESSION} WHERE name = ? ORDER BY key{self.lock_rows}", (name,))
        return [session_row(values) for values in rows]

    def members(self, key: int) -> list[SessionRow]:
        rows = self._run(f"{SELECT_SESSION} WHERE merged_into = ? ORDER BY key", (key,))
        return [session_row(values) for values in rows]

    def open_since(self, limit: int) -> list[SessionRow]:
        rows = self._run(
            f"{SELECT_SESSION} WHERE open = 1 ORDER BY seen DESC, key DESC LIMIT ?", (limit,)
        )
        return [session_row(values) for values in rows]

    def unseen_since(self, time_ms: int, limit: int, *, is_open: bool) -> list[SessionRow]:
        rows = self._run(
            f"{SELECT_SESSION} WHERE open = {int(is_open)} AND seen < ? ORDER BY seen, key LIMIT ?",
            (time_ms, limit),
        )
        return [session_row(values) for values in rows]

    def delete_sessions(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._run("DELETE FROM decisions WHERE session = ?", (key,))
            self._run("DELETE FROM sessions WHERE key = ?", (key,))

    def add_decision(self, row: DecisionRow) -> None:
        self._run(_ADD_DECISION, msgspec.structs.astuple(row))

    def decision(self, order: int) -> DecisionRow | None:
        return self._decision("id", order)

    def decision_by_request(self, request_id: str) -> DecisionRow | None:
        return self._decision("request_id", request_id)

    def decision_by_event(self, event_id: str) -> DecisionRow | None:
        return self._decision("event_id", event_id)

    def _decision(self, column: str, value: object) -> DecisionRow | None:
        values = self._one(f"{SELECT_DECISION} WHERE {column} = ?", (value,))
        return None if values is None else DecisionRow(*values)

    def set_reward(
        self, order: int, value: float, at: int, status: RewardStatus, event_id: str | None
    ) -> None:
        self._run(
            "UPDATE decisions SET reward = ?, reward_order = ?, reward_status = ?, event_id = ? "
            "WHERE id = ?",
            (value, at, status, event_id, order),
        )

    def applied(self, sessions: Sequence[int], after: int = -1) -> list[DecisionRow]:
        rows = self._run(
            f"{SELECT_DECISION} WHERE session IN ({_places(len(sessions))}) "
            "AND reward_status = 'applied' AND reward_order > ? ORDER BY reward_order",
            (*sessions, after),
        )
        return [DecisionRow(*values) for values in rows]

    def decisions(self, sessions: Sequence[int], limit: int) -> list[DecisionRow]:
        rows = self._run(
            f"{SELECT_DECISION} WHERE session IN ({_places(len(sessions))}) "
            "ORDER BY id DESC LIMIT ?",
            (*sessions, limit),
        )
        return [DecisionRow(*values) for values in reversed(rows)]

    def put_model(self, row: ModelRow) -> None:
        self._run(
            "INSERT INTO models (id, name, files) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING",
            (row.id, row.name, row.files),
        )

    def model(self, model_id: str) -> ModelRow | None:
        values = self._one(SELECT_MODEL, (model_id,))
        return None if values is None else ModelRow(*values)

    def model_names(self) -> dict[str, str]:
        return dict(self._run("SELECT id, name FROM models"))

    def add_activation(self, row: ActivationRow) -> None:
        self._run(
            "INSERT INTO activations (id, model, mode) VALUES (?, ?, ?)",
            (row.order, row.model, row.mode),
        )

    def activations(self, after: int = -1) -> list[ActivationRow]:
        rows = self._run(
            "SELECT id, model, mode FROM activations WHERE id > ? ORDER BY id", (after,)
        )
        return [ActivationRow(*values) for values in rows]

    def note(self, name: str) -> bytes | None:
        values = self._one("SELECT value FROM notes WHERE name = ?", (name,))
        return None if values is None else values[0]

    def put_note(self, name: str, value: bytes) -> None:
        self._run(
            "INSERT INTO notes (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def notes(self, prefix: str) -> dict[str, bytes]:
        rows = self._run("SELECT name, value FROM notes")
        return {name: value for name, value in rows if name.startswith(prefix)}
