"""Sessions in PostgreSQL: several service processes share them, one row lock per session."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

from latentbandits.serving.errors import (
    Contention,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from latentbandits.serving.stores.schema import SCHEMA_VERSION, check_version, migrate
from latentbandits.serving.stores.sql import Row, SqlReader, SqlStore, largest_order

Value = TypeVar("Value")
_log = logging.getLogger(__name__)
N_NODES = 256
_LOCK_CLASS = 0x6C62  # class of the advisory locks: one per node, and the three below
_SCHEMA_LOCK, _STREAM_LOCK, _ACTIVATION_LOCK = -1, -2, -3
_CONNECT_SECONDS = 3
_STATEMENT_SECONDS = 4.0  # timeout, also if the server does not respond
_MIGRATION_SECONDS = 3600.0
_BLOCK = 64  # orders that are reserved at a time
_STREAM = (
    "CREATE SEQUENCE positions",
    "CREATE TABLE stream (position BIGINT PRIMARY KEY DEFAULT nextval('positions'), "
    "kind SMALLINT NOT NULL, id BIGINT NOT NULL)",
    f"CREATE SEQUENCE orders INCREMENT BY {_BLOCK}",
)
# Names are locked, not rows: a session that begins has no row yet. Merged sessions are locked
# together with those that they were merged into.
_LOCK_SESSIONS = """
WITH RECURSIVE named AS (
    SELECT merged_into, name FROM sessions WHERE name = ANY(?) AND merged_into IS NOT NULL
    UNION SELECT s.merged_into, s.name FROM decisions d JOIN sessions s ON s.key = d.session
    WHERE d.id = ANY(?)
    UNION SELECT s.merged_into, s.name FROM named n JOIN sessions s ON s.key = n.merged_into
)
SELECT count(pg_advisory_xact_lock(lock)) FROM (
    SELECT DISTINCT hashtextextended(name, 0) AS lock
    FROM (SELECT name FROM named UNION ALL SELECT unnest(?::text[])) AS names
    ORDER BY lock
) AS sorted
"""
_CONTENTION = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
)


class DeadlineConnection(psycopg.Connection[Row]):
    """A connection on which no call waits longer than `seconds` for the server."""

    seconds: float = _STATEMENT_SECONDS

    def wait(self, gen: PQGen[Value], interval: float = 0.1, timeout: float | None = None) -> Value:
        return super().wait(gen, interval, self.seconds if timeout is None else timeout)


def connect(url: str) -> DeadlineConnection:
    """Open a connection whose statements end in time, at the server and here.

    StoreError if the database cannot hold every text.
    """
    connection = DeadlineConnection.connect(
        url, autocommit=True, connect_timeout=_CONNECT_SECONDS, client_encoding="utf8"
    )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        connection.close()
        raise StoreError(
            f"the PostgreSQL database has the encoding {encoding}, in which ids cannot all be "
            "stored: create one with ENCODING 'UTF8' TEMPLATE template0"
        )
    milliseconds = int(_STATEMENT_SECONDS * 1000)
    connection.execute(
        f"SET lock_timeout = {milliseconds // 2}; SET statement_timeout = {milliseconds}; "
        f"SET idle_in_transaction_session_timeout = {2 * milliseconds}".encode()
    )
    return connection


class PostgresqlStore(SqlStore):
    """Sessions in a PostgreSQL database, which several processes share."""

    durable = True
    shared = True
    lock_rows = " FOR UPDATE"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._connection: DeadlineConnection | None = None
        self.node = 0
        self.warnings: list[str] = []
        try:
            self._connection = self._connect()
            _migrate(self._connection)
        except (psycopg.Error, StoreError) as error:
            self._disconnect()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"cannot open the PostgreSQL store: {error}") from None

    def _connect(self) -> DeadlineConnection:
        connection = connect(self._url)
        for node in range(N_NODES):
            row = connection.execute(
                "SELECT pg_try_advisory_lock(%s, %s)", (_LOCK_CLASS, node)
            ).fetchone()
            if row is not None and row[0]:
                self.node = node
                return connection
        connection.close()
        raise StoreError(f"{N_NODES} processes share this store already")

    @contextmanager
    def _failing(self) -> Iterator[DeadlineConnection]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection
        except _CONTENTION as error:
            raise Contention(f"another process was in the way: {reason(error)}") from error
        except (psycopg.Error, StoreError) as error:
            self._disconnect()
            _log.debug("PostgreSQL failed: %s", error)
            raise StoreUnavailable(f"the PostgreSQL store failed: {reason(error)}") from error

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._failing() as connection:
            return _rows(connection.execute(translated(statement), values))

    def _run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._failing() as connection, connection.cursor() as cursor:
            cursor.executemany(translated(statement), rows)  # sends all rows before it waits

    def reserve(self, floor: int) -> range:
        first = int(self._run("SELECT nextval('orders')")[0][0])
        return range(first, first + _BLOCK)

    def continue_sequences(self, end: int) -> None:
        self._run("SELECT setval('orders', ?, false)", (largest_order(self._run) + _BLOCK,))
        self._run("SELECT setval('positions', ?, false)", (end + 1,))

    def lock_activations(self) -> None:
        self._run("SELECT pg_advisory_xact_lock(?, ?)", (_LOCK_CLASS, _ACTIVATION_LOCK))

    def lock_sessions(self, names: Sequence[str], decisions: Sequence[int]) -> None:
        self._run(_LOCK_SESSIONS, (list(names), list(decisions), list(names)))

    def begin(self) -> None:
        self._events.clear()
        self._run("BEGIN")

    def commit(self) -> None:
        """Commit; events get their positions under a lock, so that positions grow with the commits.

        The three statements are sent at once: a process that is stopped here holds nobody up.
        """
        events, self._events = self._events, []
        try:
            with self._failing() as connection, connection.pipeline():
                if events:
                    connection.execute(
                        "SELECT pg_advisory_xact_lock(%s, %s)", (_LOCK_CLASS, _STREAM_LOCK)
                    )
                    connection.execute(
                        "INSERT INTO stream (kind, id) "
                        "SELECT * FROM unnest(%s::smallint[], %s::bigint[])",
                        ([kind for kind, _ in events], [order for _, order in events]),
                    )
                connection.execute("COMMIT")
        except Contention:
            raise
        except StoreUnavailable as error:
            if _is_certain(error.__cause__):
                raise
            raise OutcomeUnknown(f"{error.message}, while it committed") from error

    def rollback(self) -> None:
        self._events.clear()
        if self._connection is not None:
            with suppress(StoreUnavailable):
                self._run("ROLLBACK")

    def close(self) -> None:
        self._disconnect()

    def log_reader(self) -> PostgresqlReader:
        try:
            return PostgresqlReader(self._url)
        except StoreError as error:
            _log.debug("%s", error)
            raise StoreUnavailable("the PostgreSQL store cannot be read now") from None


class PostgresqlReader(SqlReader):
    """Reads beside the processes that write."""

    place = "the PostgreSQL store"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._last: int | None = None  # of a frozen view
        try:
            self._connection = connect(url)
            version = _version(self._connection)
        except psycopg.Error as error:
            raise StoreError(f"cannot read the PostgreSQL store: {error}") from None
        try:
            if version == 0:
                raise StoreError("this PostgreSQL database holds no store of latentbandits")
            check_version(self.place, version, exactly=True)
        except StoreError:
            self._connection.close()
            raise

    @contextmanager
    def _failing(self) -> Iterator[DeadlineConnection]:
        try:
            yield self._connection
        except psycopg.Error as error:
            raise StoreUnavailable(f"{self.place} cannot be read: {reason(error)}") from error

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._failing() as connection:
            return connection.execute(translated(statement), values or None).fetchall()

    def end(self) -> int:
        """Return the last committed position; the lock waits for commits that are under way.

        Both statements are sent at once: a process that is stopped here holds nobody up.
        """
        if self._last is not None:
            return self._last
        with self._failing() as connection:
            cursor = connection.execute(
                f"SELECT pg_advisory_xact_lock_shared({_LOCK_CLASS}, {_STREAM_LOCK}); "
                "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END "
                "FROM positions".encode()
            )
            cursor.nextset()
            return int(cursor.fetchall()[0][0])

    def freeze(self) -> None:
        end = self.end()  # all up to here is in the view
        with self._failing() as connection:
            connection.seconds = _MIGRATION_SECONDS
            connection.execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0"
            )
        rows = self._run("SELECT COALESCE(max(position), 0) FROM stream")
        self._last = max(end, int(rows[0][0]))

    def file_problems(self) -> Iterator[str]:
        if self._run("SHOW data_checksums") != [("on",)]:
            yield f"note: {self.place} runs without data checksums (initdb --data-checksums)"

    def close(self) -> None:
        self._connection.close()


def reason(error: BaseException) -> str:
    """Return why PostgreSQL failed, without the address of the server."""
    if isinstance(error, psycopg.Error):
        told = error.diag.message_primary
        return told if told else f"no answer or no connection ({type(error).__name__})"
    return str(error)


def _rows(cursor: psycopg.Cursor[Row]) -> list[Row]:
    """Return the rows of a statement; none where it returns nothing."""
    return cursor.fetchall() if cursor.description is not None else []


def _is_certain(cause: BaseException | None) -> bool:
    """Return whether the server itself reported that it did not commit, and is still running."""
    if not isinstance(cause, psycopg.Error) or cause.sqlstate is None:
        return False
    return cause.diag.severity_nonlocalized == "ERROR"


@lru_cache
def translated(statement: str) -> bytes:
    """Return a statement with the placeholders of psycopg."""
    return statement.replace("?", "%s").encode()


def _version(connection: psycopg.Connection[Row]) -> int:
    """Return the version of the tables that are there: 0 where there are none."""
    row = connection.execute("SELECT to_regclass('schema_version')").fetchone()
    if row is None or row[0] is None:
        return 0
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    return 0 if row is None else int(row[0])


def _migrate(connection: DeadlineConnection) -> None:
    """Migrate the tables to the current schema, one process at a time."""
    version = _version(connection)
    check_version(PostgresqlReader.place, version)
    if version == SCHEMA_VERSION:
        return

    def run(statement: str, values: Sequence[Any]) -> list[Row]:
        text = translated(statement.replace("BLOB", "BYTEA"))
        return _rows(connection.execute(text, values or None))

    connection.seconds = _MIGRATION_SECONDS
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (_LOCK_CLASS, _SCHEMA_LOCK))
        first = migrate(run, _version(connection), _STREAM)
        if first is not None:
            connection.execute("SELECT setval('orders', %s, false)", (first,))
        connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version VALUES (%s)", (SCHEMA_VERSION,))
    connection.seconds = _STATEMENT_SECONDS
