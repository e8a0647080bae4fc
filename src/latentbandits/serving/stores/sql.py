"""The statements that the SQL stores share, each written once; the checksums of their rows."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import NoneType
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args

import msgspec

from latentbandits.serving.errors import Damaged
from latentbandits.serving.records import (
    VISITORS,
    ActivationRow,
    AuditRow,
    DecisionRow,
    LoggedEvent,
    ModelRow,
    NoteRow,
    RewardedDecision,
    RewardRow,
    SessionRow,
    SnapshotRow,
)
from latentbandits.serving.stores.differences import as_difference, unneeded, whole
from latentbandits.serving.stores.protocol import (
    LAST,
    SHARED,
    STORE_ID,
    LogReader,
    decode_shared,
)

Row: TypeAlias = tuple[Any, ...]
Run: TypeAlias = Callable[[str, Sequence[Any]], Iterable[Row]]
Record = TypeVar("Record", bound=msgspec.Struct)

DECISION, REWARD, AUDIT = 0, 1, 2  # kinds of events in the stream
_PAGE = 500  # rows that are read at a time
_EVENTS = 50  # events of the log that are read at a time
_IDS = 1_000  # values of one IN (...)
_encode = msgspec.msgpack.Encoder().encode
_NONE = -1  # marks rows that were written without a checksum; no CRC is negative
_RENAMED = {"order": "id", "index": "place", "group": "group_name"}
_TYPES = {int: "BIGINT", bool: "SMALLINT", float: "DOUBLE PRECISION", bytes: "BLOB"}

_COLUMNS = {"sessions": 17, "decisions": 19, "rewards": 10, "models": 4, "activations": 5}
"""Numbers of columns in version 3, of tables with columns that were added later."""


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


class Table(Generic[Record]):
    """Make a table, write and read its rows: the fields of a struct, then a checksum.

    The checksum is the CRC-32 of a row's values, begun with the name of its table: a row that was
    altered outside this program is refused. A CRC notices every single flipped bit. Columns that
    were added later are left out where they are empty, so that old rows stay valid.
    """

    def __init__(self, name: str, record: type[Record]) -> None:
        self.name = name
        self.record = record
        fields = record.__struct_fields__
        self.columns = (*(_RENAMED.get(field, field) for field in fields), "checksum")
        self._open = fields.index("open") if "open" in fields else None
        self._seed = zlib.crc32(name.encode())
        self._first_columns = _COLUMNS.get(name, len(fields))
        self.select: Final = f"SELECT {self.listed()} FROM {name}"
        self.insert: Final = f"INSERT INTO {name} ({self.listed()}) VALUES ({_marks(self.columns)})"
        changes = ", ".join(f"{column} = ?" for column in self.columns[1:])
        self.update: Final = f"UPDATE {name} SET {changes} WHERE {self.columns[0]} = ?"

    @property
    def create(self) -> str:
        """The statement that makes the table; the first field is its key."""
        types = [field.type for field in msgspec.structs.fields(self.record)]
        key, *others = map(_declared, self.columns, [*types, int])
        columns = [f"{key.removesuffix(' NOT NULL')} PRIMARY KEY", *others]
        return f"CREATE TABLE {self.name} ({', '.join(columns)})"

    def listed(self, alias: str | None = None) -> str:
        """Return the columns for a SELECT, with the alias of a joined table."""
        prefix = "" if alias is None else f"{alias}."
        return ", ".join(f"{prefix}{column}" for column in self.columns)

    def _checksum(self, values: Sequence[Any]) -> int:
        n = self._first_columns
        if values[n:].count(None) == len(values) - n:
            values = values[:n]
        return zlib.crc32(_encode(values), self._seed)

    def values(self, row: Record, *, summed: bool = True) -> list[Any]:
        """Return the columns of a row, its checksum last; without `summed`, no checksum."""
        values = list(msgspec.structs.astuple(row))
        if self._open is not None:
            values[self._open] = int(values[self._open])
        values.append(self._checksum(values) if summed else _NONE)
        return values

    def verified(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the columns of a row; Damaged if their checksum is another."""
        *content, expected = values
        if expected != _NONE and self._checksum(content) != expected:
            place = f"row {content[0]!r} of the table {self.name}"
            raise Damaged(f"{place} is damaged (checksum differs)")
        return values

    def row(self, values: Sequence[Any]) -> Record:
        """Return the row of these columns; Damaged if their checksum is another."""
        content = list(self.verified(values)[:-1])
        if self._open is not None:
            content[self._open] = bool(content[self._open])
        return self.record(*content)


def _declared(column: str, kind: Any) -> str:
    kinds = (kind, *get_args(kind))
    stored = next((name for one, name in _TYPES.items() if one in kinds), "TEXT")
    return f"{column} {stored}{'' if NoneType in kinds else ' NOT NULL'}"


SESSIONS = Table("sessions", SessionRow)
DECISIONS = Table("decisions", DecisionRow)
REWARDS = Table("rewards", RewardRow)
SNAPSHOTS = Table("snapshots", SnapshotRow)
MODELS = Table("models", ModelRow)
ACTIVATIONS = Table("activations", ActivationRow)
AUDITS = Table("audit", AuditRow)
NOTES = Table("notes", NoteRow)
TABLES: tuple[Table[Any], ...] = (
    SESSIONS, DECISIONS, REWARDS, SNAPSHOTS, MODELS, ACTIVATIONS, AUDITS, NOTES,
)  # fmt: skip

_N_DECISION, _N_REWARD = len(DECISIONS.columns), len(REWARDS.columns)
_BEFORE = 4  # columns of an event before those of its decision
_TREE = """WITH RECURSIVE tree(key) AS (
    SELECT CAST(? AS BIGINT)
    UNION ALL SELECT s.key FROM sessions s JOIN tree ON s.merged_into = tree.key
    WHERE s.merged_at < ?) """
_TOUCH = """UPDATE sessions SET seen = ?, rounds = ?, rewards = ?, reward_sum = ?, last_order = ?,
    activation = ?, probabilities = ?, revision = ?, checksum = ? WHERE key = ?"""
_PUT_NOTE = f"""{NOTES.insert} ON CONFLICT (name)
    DO UPDATE SET value = excluded.value, checksum = excluded.checksum"""
_ROOT = """WITH RECURSIVE path(key, merged_into, depth) AS (
    SELECT key, merged_into, 0 FROM sessions WHERE key = ?
    UNION ALL SELECT s.key, s.merged_into, path.depth + 1
    FROM sessions s JOIN path ON s.key = path.merged_into)
    SELECT key FROM path ORDER BY depth DESC LIMIT 1"""
_LATEST = "(SELECT max(x.id) FROM rewards x WHERE x.decision = d.id)"
_EVENTS_SINCE = f"""SELECT s.position, o.position, n.name, n.user_features, {DECISIONS.listed("d")},
    {REWARDS.listed("r")}, {REWARDS.listed("c")}
    FROM stream s LEFT JOIN rewards r ON r.id = s.id
    JOIN decisions d ON d.id = COALESCE(r.decision, s.id)
    JOIN stream o ON o.id = d.id
    JOIN sessions n ON n.key = d.session
    LEFT JOIN rewards c ON c.id = (SELECT max(x.id) FROM rewards x JOIN stream p ON p.id = x.id
        WHERE x.decision = d.id AND p.position <= ?)
    WHERE s.position > ? AND s.position <= ? ORDER BY s.position LIMIT ?"""


# `{which}` stands for a condition on the column of the session, or of the row.
_ONE, _MERGED = "session = ?", "session IN (SELECT key FROM tree)"
_APPLIED = f"""SELECT {DECISIONS.listed("d")}, {REWARDS.listed("r")}
    FROM rewards r JOIN decisions d ON d.id = r.decision
    WHERE r.{{which}} AND r.applies_at > ? AND r.id < ? AND r.status = 'applied'
    AND NOT EXISTS (SELECT 1 FROM rewards x WHERE x.decision = r.decision AND x.id > r.id
                    AND x.id < ? AND x.status = 'applied')
    ORDER BY r.applies_at LIMIT ?"""
# An index answers this one alone.
_REPLAY_ORDER = """SELECT r.applies_at, r.id FROM rewards r
    WHERE r.{which} AND (r.applies_at, r.id) > (?, ?) ORDER BY r.applies_at, r.id LIMIT ?"""
_LATEST_DECISIONS = """SELECT d.id,
    COALESCE(length(d.features), 0) + COALESCE(length(d.actions), 0)
    FROM decisions d WHERE d.{which} ORDER BY d.id DESC LIMIT ?"""
_HISTORY = f"""SELECT {DECISIONS.listed("d")}, {REWARDS.listed("c")}
    FROM decisions d LEFT JOIN rewards c ON c.id = {_LATEST}
    WHERE d.id IN ({{marks}}) ORDER BY d.id"""
_HISTORY_BYTES = 16 * 2**20  # largest size of the features and actions of a history


def _rewarded(values: Row) -> RewardedDecision:
    return RewardedDecision(DECISIONS.row(values[:_N_DECISION]), _reward(values[_N_DECISION:]))


def _reward(values: Row) -> RewardRow | None:
    return None if values[0] is None else REWARDS.row(values)


def _logged(values: Row) -> LoggedEvent:
    position, decided_at, name, user_features = values[:_BEFORE]
    end, last = _BEFORE + _N_DECISION, _BEFORE + _N_DECISION + _N_REWARD
    decision = DECISIONS.row(values[_BEFORE:end])
    rewards = _reward(values[end:last]), _reward(values[last:])
    return LoggedEvent(position, decided_at, name, decision, *rewards, user_features)


def _size(event: LoggedEvent) -> int:
    """Return about how many bytes an event takes in an answer."""
    return 1000 + 3 * len(event.decision.features or b"")


def largest_order(run: Run) -> int:
    """Return the largest order of any row."""
    columns = (
        ("sessions", "key"), ("sessions", "last_order"), ("sessions", "merged_at"),
        ("decisions", "id"), ("rewards", "id"), ("activations", "id"), ("audit", "id"),
    )  # fmt: skip
    largest = [
        run(f"SELECT COALESCE(max({column}), 0) FROM {table}", ()) for table, column in columns
    ]
    return max(int(order) for ((order,),) in largest)


def paged(run: Run, columns: str, table: str, key: str) -> Iterator[Row]:
    """Yield all rows of a table in the order of a key, which must be the first column."""
    after: Any = None
    while True:
        where = "" if after is None else f" WHERE {key} > ?"
        statement = f"SELECT {columns} FROM {table}{where} ORDER BY {key} LIMIT {_PAGE}"
        rows = list(run(statement, () if after is None else (after,)))
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


class SqlQueries(ABC):
    """The statements; subclasses give a connection, by `_run`."""

    summed = True  # whether rows that are written get a checksum
    lock_rows = ""  # appended to the SELECT of a session, to lock its row for an update

    def __init__(self) -> None:
        self._events: list[tuple[int, int]] = []  # (kind, id) of this transaction, in order

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement with ? for its values, in the transaction under way."""

    def _run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement, which returns nothing, for each row of values."""
        for values in rows:
            self._run(statement, values)

    def insert(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        """Insert rows that were read from another store; return how many there were."""
        n = 0
        for n, values in enumerate(rows, 1):  # noqa: B007 - counted
            self._run(statement, values)
        return n

    def _all(self, table: Table[Record], where: str, values: Sequence[Any]) -> list[Record]:
        return [table.row(one) for one in self._run(f"{table.select} WHERE {where}", values)]

    def _first(self, table: Table[Record], where: str, *values: Any) -> Record | None:
        return next(iter(self._all(table, where, values)), None)

    def _add(self, table: Table[Record], *rows: Record) -> None:
        self._run_many(table.insert, [table.values(row, summed=self.summed) for row in rows])

    def _of_session(
        self, statement: str, key: int, *values: Any, merged: bool, before: int = LAST
    ) -> list[Row]:
        """Run a statement about a session; `merged`: also about those merged into it until
        `before`.
        """
        if merged:
            return self._run(_TREE + statement.format(which=_MERGED), (key, before, *values))
        return self._run(statement.format(which=_ONE), (key, *values))

    # sessions

    def session(self, key: int) -> SessionRow | None:
        return self._first(SESSIONS, f"key = ?{self.lock_rows}", key)

    def session_named(self, name: str) -> SessionRow | None:
        return self._first(SESSIONS, f"name = ? ORDER BY key DESC LIMIT 1{self.lock_rows}", name)

    def root(self, key: int) -> int:
        return next((int(root) for (root,) in self._run(_ROOT, (key,))), key)

    def add_session(self, row: SessionRow) -> None:
        self._add(SESSIONS, row)

    def put_session(self, row: SessionRow) -> None:
        values = SESSIONS.values(row, summed=self.summed)
        self._run(SESSIONS.update, [*values[1:], row.key])

    def touch_sessions(self, rows: Sequence[SessionRow]) -> None:
        self._run_many(
            _TOUCH,
            [(row.seen, row.rounds, row.rewards, row.reward_sum, row.last_order,
              row.activation, row.probabilities, row.revision,
              SESSIONS.values(row)[-1] if self.summed else _NONE, row.key)
             for row in rows],
        )  # fmt: skip

    def generations(self, name: str) -> list[SessionRow]:
        return self._all(SESSIONS, f"name = ? ORDER BY key{self.lock_rows}", (name,))

    def members(self, key: int) -> list[SessionRow]:
        return self._all(SESSIONS, "merged_into = ? ORDER BY key", (key,))

    def open_since(self, limit: int) -> list[SessionRow]:
        return self._all(SESSIONS, "open = 1 ORDER BY seen DESC, key DESC LIMIT ?", (limit,))

    def unseen_since(self, time_ms: int, limit: int, *, is_open: bool) -> list[SessionRow]:
        where = f"open = {int(is_open)} AND seen < ? ORDER BY seen, key LIMIT ?"
        return self._all(SESSIONS, where, (time_ms, limit))

    def delete_sessions(self, keys: Sequence[int]) -> None:
        for key in keys:
            for table in ("decisions", "rewards"):
                self._run(
                    f"DELETE FROM stream WHERE id IN (SELECT id FROM {table} WHERE session = ?)",
                    (key,),
                )
                self._run(f"DELETE FROM {table} WHERE session = ?", (key,))
            self._run("DELETE FROM snapshots WHERE session = ?", (key,))
            self._run("DELETE FROM sessions WHERE key = ?", (key,))
            self._run("DELETE FROM notes WHERE name LIKE ?", (f"{VISITORS}{key}/%",))

    # decisions and rewards

    def add_decisions(self, rows: Sequence[DecisionRow]) -> None:
        self._events += [(DECISION, row.order) for row in rows]
        self._add(DECISIONS, *rows)

    def decision(self, order: int) -> DecisionRow | None:
        return self._first(DECISIONS, "id = ?", order)

    def decision_by_request(self, request_id: str) -> DecisionRow | None:
        return self._first(DECISIONS, "request_id = ?", request_id)

    def add_rewards(self, rows: Sequence[RewardRow]) -> None:
        self._events += [(REWARD, row.order) for row in rows]
        self._add(REWARDS, *rows)

    def reward_of(self, decision: int) -> RewardRow | None:
        return self._first(REWARDS, "decision = ? ORDER BY id DESC LIMIT 1", decision)

    def reward_by_event(self, event_id: str) -> RewardRow | None:
        return self._first(REWARDS, "event_id = ?", event_id)

    def applied(
        self,
        key: int,
        *,
        merged: bool = False,
        after: int = -1,
        before: int = LAST,
        limit: int = LAST,
    ) -> list[RewardedDecision]:
        bounds = (after, before, before, limit)
        rows = self._of_session(_APPLIED, key, *bounds, merged=merged, before=before)
        return [_rewarded(values) for values in rows]

    def replay_order(
        self, key: int, *, merged: bool, after: tuple[int, int], limit: int
    ) -> list[tuple[int, int]]:
        rows = self._of_session(_REPLAY_ORDER, key, *after, limit, merged=merged)
        return [(place, order) for place, order in rows]

    def counted(self, rewards: Sequence[int]) -> list[RewardedDecision]:
        statement = _APPLIED.format(which=f"id IN ({_marks(rewards)})")
        return [
            _rewarded(values) for values in self._run(statement, (*rewards, -1, LAST, LAST, LAST))
        ]

    def latest(self, key: int, limit: int, *, merged: bool = False) -> list[int]:
        found = self._of_session(_LATEST_DECISIONS, key, limit, merged=merged)
        total = accumulate(size for _, size in found)
        fitting = sum(1 for bytes_ in total if bytes_ <= _HISTORY_BYTES)
        return [order for order, _ in reversed(found[: max(fitting, 1)])]

    def history(self, orders: Sequence[int]) -> list[RewardedDecision]:
        rows = self._run(_HISTORY.format(marks=_marks(orders)), orders) if orders else []
        return [_rewarded(values) for values in rows]

    def unrewarded(self, after: int, before_ms: int, limit: int) -> tuple[list[DecisionRow], int]:
        rows = self._run(
            f"SELECT s.position, EXISTS (SELECT 1 FROM rewards r WHERE r.decision = d.id), "
            f"{DECISIONS.listed('d')} FROM stream s JOIN decisions d ON d.id = s.id "
            "WHERE s.position > ? ORDER BY s.position LIMIT ?",
            (after, limit),
        )
        decisions: list[DecisionRow] = []
        for position, rewarded, *values in rows:
            row = DECISIONS.row(values)
            if row.time >= before_ms:
                break
            after = position
            if not rewarded:
                decisions.append(row)
        return decisions, after

    # snapshots

    def snapshot(self, session: int) -> SnapshotRow | None:
        return self._first(SNAPSHOTS, "session = ?", session)

    def put_snapshot(self, row: SnapshotRow) -> None:
        self.drop_snapshot(row.session)
        self._add(SNAPSHOTS, row)

    def drop_snapshot(self, session: int) -> None:
        self._run("DELETE FROM snapshots WHERE session = ?", (session,))

    # models

    def put_model(self, row: ModelRow) -> None:
        kept = as_difference(row, self._kept_model)
        values = MODELS.values(kept, summed=self.summed)
        self._run(f"{MODELS.insert} ON CONFLICT (id) DO NOTHING", values)

    def model(self, model_id: str) -> ModelRow | None:
        return whole(self._kept_model(model_id), self._kept_model)

    def _kept_model(self, model_id: str) -> ModelRow | None:
        return self._first(MODELS, "id = ?", model_id)

    def prune_models(self, replaced: Mapping[str, int]) -> list[str]:
        # Keys come in blocks of 1,000: they are in the order of time but for those in use.
        statement = "SELECT started FROM sessions ORDER BY key LIMIT 10000"
        oldest = min((started for (started,) in self._run(statement)), default=LAST)
        bases: dict[str, str | None] = dict(self._run("SELECT id, base FROM models"))
        gone = unneeded(bases, replaced, oldest)
        for model_id in gone:
            self._run("DELETE FROM models WHERE id = ?", (model_id,))
        return gone

    def model_summaries(self) -> dict[str, tuple[str, bytes]]:
        rows = self._run("SELECT id, name, summary FROM models")
        return {model_id: (name, summary) for model_id, name, summary in rows}

    def add_activation(self, row: ActivationRow) -> None:
        self._add(ACTIVATIONS, row)

    def activations(self, after: int = -1) -> list[ActivationRow]:
        return self._all(ACTIVATIONS, "id > ? ORDER BY id", (after,))

    # everything else

    def add_audit(self, row: AuditRow) -> None:
        self._add(AUDITS, row)
        self._events.append((AUDIT, row.order))

    def audit(self, after: int, limit: int) -> list[AuditRow]:
        return self._all(AUDITS, "id > ? ORDER BY id LIMIT ?", (after, limit))

    def note(self, name: str) -> bytes | None:
        row = self._first(NOTES, "name = ?", name)
        return None if row is None else row.value

    def put_note(self, name: str, value: bytes) -> None:
        self._run(_PUT_NOTE, NOTES.values(NoteRow(name, value), summed=self.summed))

    def leave_cursors(self, end: int) -> None:
        """Make this store give new cursors from now on, with an id that the engine draws.

        Called when this store and another one diverge after the position `end`.
        """
        before = decode_shared(self.note(SHARED))
        own = self.note(STORE_ID)
        if own is not None:
            before = (*before, (own, end))
            self._run("DELETE FROM notes WHERE name = ?", (STORE_ID,))
        shared = [(store_id, min(last, end)) for store_id, last in before]
        self.put_note(SHARED, msgspec.msgpack.encode(shared))

    def notes(self, prefix: str) -> dict[str, bytes]:
        rows = [row for row in self._run(NOTES.select) if row[0].startswith(prefix)]
        return {note.name: note.value for note in map(NOTES.row, rows)}


class SqlStore(SqlQueries):
    """A store that can be written: with transactions, and sequences that can be continued."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit it."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    @abstractmethod
    def continue_sequences(self, end: int) -> None:
        """Continue orders above all copied ones, and positions above `end`."""


class SqlReader(SqlQueries, LogReader):
    """A view of a store while other processes write to it."""

    place: str
    """The name of the store, for messages."""

    @abstractmethod
    def freeze(self) -> None:
        """Show the tables as of this moment from now on."""

    @abstractmethod
    def file_problems(self) -> Iterator[str]:
        """Yield problems of the storage itself, not of its rows."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one SELECT with ? for its values."""
        return self._run(statement, values)

    def read(
        self, since: int, limit: int, max_bytes: int = 1 << 26, until: int = LAST
    ) -> list[LoggedEvent]:
        taken: list[LoggedEvent] = []
        total = 0
        while len(taken) < limit:  # a few rows at a time, because they may be large
            step = min(limit - len(taken), _EVENTS)
            rows = self._run(_EVENTS_SINCE, (until, since, until, step))
            for event in map(_logged, rows):
                total += _size(event)
                if taken and total > max_bytes:
                    return taken
                taken.append(event)
            if len(rows) < step:
                break
            since = taken[-1].position
        return taken

    def present(self, orders: Sequence[int]) -> set[int]:
        found: set[int] = set()
        for start in range(0, len(orders), _IDS):
            part = orders[start : start + _IDS]
            rows = self._run(f"SELECT id FROM decisions WHERE id IN ({_marks(part)})", part)
            found.update(order for (order,) in rows)
        return found
