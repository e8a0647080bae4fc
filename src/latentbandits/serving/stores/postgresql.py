"""Sessions in PostgreSQL: several service processes share them, one row lock per session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg

from latentbandits.serving.engine.orders import N_NODES, first_order_at, milliseconds
from latentbandits.serving.errors import Contention, StoreError, StoreUnavailable
from latentbandits.serving.records import LoggedDecision, ModelRow
from latentbandits.serving.stores.sql import (
    MIGRATIONS,
    SCHEMA_VERSION,
    SELECT_LOG,
    SELECT_MODEL,
    Row,
    SqlStore,
    logged,
)

_LOCK_CLASS = 0x6C62  # of the advisory locks: one for the schema, one for each node
_SCHEMA_LOCK = -1
_SETTLED_MS = 10_000  # transactions of several processes commit out of order within this time
_CONNECT_SECONDS = 5
_CONTENTION = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
)


class PostgresqlStore(SqlStore):
    durable = True
    shared = True
    lock_rows = " FOR UPDATE"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Row] | None = None
        self._node = 0
        try:
            self._connection = self._connect()
            _migrate(self._connection)
        except psycopg.Error as error:
            self._disconnect()
            raise StoreError(f"cannot open the PostgreSQL store: {error}") from None
        except StoreError:
            self._disconnect()
            raise

    @property
    def node(self) -> int:
        return self._node

    def _connect(self) -> psycopg.Connection[Row]:
        connection: psycopg.Connection[Row] = psycopg.connect(
            self._url, autocommit=True, connect_timeout=_CONNECT_SECONDS
        )
        connection.execute("SET lock_timeout = '5s'")
        connection.execute("SET statement_timeout = '10s'")
        connection.execute("SET idle_in_transaction_session_timeout = '30s'")
        for node in range(N_NODES):
            row = connection.execute(
                "SELECT pg_try_advisory_lock(%s, %s)", (_LOCK_CLASS, node)
            ).fetchone()
            if row is not None and row[0]:
                self._node = node
                return connection
        connection.close()
        raise StoreError(f"{N_NODES} processes share this store already")

    @contextmanager
    def _failing(self) -> Iterator[psycopg.Connection[Row]]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection
        except _CONTENTION as error:
            raise Contention(f"another process was in the way: {error}") from error
        except (psycopg.Error, StoreError) as error:
            self._disconnect()
            raise StoreUnavailable(f"the PostgreSQL store failed: {error}") from error

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._failing() as connection:
            cursor = connection.execute(_translated(statement), values)
            return cursor.fetchall() if cursor.description is not None else []

    def begin(self) -> None:
        self._run("BEGIN")

    def commit(self) -> None:
        self._run("COMMIT")

    def rollback(self) -> None:
        if self._connection is not None:
            with suppress(StoreUnavailable):
                self._run("ROLLBACK")

    def close(self) -> None:
        self._disconnect()

    def log_reader(self) -> PostgresqlLog:
        return PostgresqlLog(self._url)


class PostgresqlLog:
    """Decisions that have settled: those of the last ten seconds may still be joined by others."""

    def __init__(self, url: str) -> None:
        try:
            self._connection: psycopg.Connection[Row] = psycopg.connect(
                url, autocommit=True, connect_timeout=_CONNECT_SECONDS
            )
        except psycopg.Error as error:
            raise StoreError(f"cannot read the PostgreSQL store: {error}") from None
        if check_version(self._connection) == 0:
            self._connection.close()
            raise StoreError("this PostgreSQL database holds no store of latentbandits")

    def read(self, since: int, limit: int) -> list[LoggedDecision]:
        settled = first_order_at(milliseconds() - _SETTLED_MS)
        try:
            cursor = self._connection.execute(_translated(SELECT_LOG), (since, settled, limit))
            return [logged(values) for values in cursor.fetchall()]
        except psycopg.Error as error:
            raise StoreUnavailable(f"the PostgreSQL store cannot be read: {error}") from error

    def model(self, model_id: str) -> ModelRow | None:
        values = self._connection.execute(_translated(SELECT_MODEL), (model_id,)).fetchone()
        return None if values is None else ModelRow(*values)

    def close(self) -> None:
        self._connection.close()


@lru_cache
def _translated(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _version(connection: psycopg.Connection[Row]) -> int:
    """The version of the tables that are there: 0 where there are none."""
    row = connection.execute("SELECT to_regclass('schema_version')").fetchone()
    if row is None or row[0] is None:
        return 0
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    return 0 if row is None else int(row[0])


def check_version(connection: psycopg.Connection[Row]) -> int:
    version = _version(connection)
    if version > SCHEMA_VERSION:
        connection.close()
        raise StoreError(
            f"the PostgreSQL store has schema version {version}; this latentbandits knows up to "
            f"{SCHEMA_VERSION}: upgrade latentbandits, or use another database"
        )
    return version


def _migrate(connection: psycopg.Connection[Row]) -> None:
    """One process at a time brings the tables up to date."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (_LOCK_CLASS, _SCHEMA_LOCK))
        version = check_version(connection)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement.replace("BLOB", "BYTEA").encode())
        connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version VALUES (%s)", (SCHEMA_VERSION,))
