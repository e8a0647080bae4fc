"""Sessions in one SQLite file: WAL, an fsync with every commit, one process at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import apsw

from latentbandits.serving.errors import StoreError, StoreUnavailable
from latentbandits.serving.records import LoggedDecision, ModelRow
from latentbandits.serving.stores.holder import FileHolder
from latentbandits.serving.stores.sql import (
    MIGRATIONS,
    SCHEMA_VERSION,
    SELECT_LOG,
    SELECT_MODEL,
    Row,
    SqlStore,
    logged,
)

Synchronous = Literal["FULL", "NORMAL"]
APPLICATION_ID = 0x6C62616E  # "lban"
_NO_LIMIT = (1 << 63) - 1
_BUSY_MS = 2_000  # only a reader's checkpoint can be in the way


class SqliteStore(SqlStore):
    """`synchronous` FULL: a commit returns after its fsync. NORMAL: a power cut may lose the
    last commits (a killed process does not).
    """

    durable = True
    shared = False
    node = 0

    def __init__(
        self, path: str | Path, synchronous: Synchronous = "FULL", checkpoint_pages: int = 1000
    ) -> None:
        self._path = Path(path)
        self._checkpoint_pages = checkpoint_pages
        self._synchronous = synchronous
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._holder = FileHolder(Path(f"{self._path}.lock"), str(self._path))
        except OSError as error:
            raise StoreError(f"cannot open {self._path}: {error.strerror}") from None
        try:
            self._connection: apsw.Connection | None = self._connect()
            self._migrate(self._connection)
        except apsw.Error as error:
            self._holder.release()
            raise StoreError(f"cannot open {self._path}: {error}") from None
        except StoreError:
            self._holder.release()
            raise

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {self._checkpoint_pages}")
        connection.execute("PRAGMA secure_delete = ON")  # a deleted session leaves no bytes behind
        connection.execute("PRAGMA cache_size = -16384")
        return connection

    def _migrate(self, connection: apsw.Connection) -> None:
        application, version = read_version(connection)
        empty = version == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
        if not empty:
            check_version(str(self._path), application, version)
        connection.execute("BEGIN IMMEDIATE")
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                connection.execute(statement.replace("BIGINT PRIMARY", "INTEGER PRIMARY"))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")

    @contextmanager
    def _failing(self) -> Iterator[apsw.Connection]:
        """The connection; after a failure it is opened anew, for the next transaction."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection
        except apsw.Error as error:
            self._disconnect()
            raise StoreUnavailable(f"the store {self._path} failed: {error}") from error

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close(True)  # an open transaction is rolled back

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._failing() as connection:
            return list(connection.execute(statement, values))

    def begin(self) -> None:
        with self._failing() as connection:
            connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        with self._failing() as connection:
            connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            with self._failing() as connection:
                connection.execute("ROLLBACK")

    def close(self) -> None:
        self._disconnect()
        self._holder.release()

    def log_reader(self) -> SqliteLog:
        return SqliteLog(self._path)


class SqliteLog:
    """Reads the file beside the process that holds it: WAL readers and the writer do not wait."""

    def __init__(self, path: str | Path) -> None:
        if not Path(path).is_file():
            raise StoreError(f"there is no store at {path}")
        try:
            self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
            self._connection.set_busy_timeout(_BUSY_MS)
            self._connection.execute("PRAGMA query_only = ON")
            check_version(str(path), *read_version(self._connection))
        except apsw.Error as error:
            raise StoreError(f"cannot read {path}: {error}") from None

    def read(self, since: int, limit: int) -> list[LoggedDecision]:
        try:
            rows = list(self._connection.execute(SELECT_LOG, (since, _NO_LIMIT, limit)))
        except apsw.Error as error:
            raise StoreUnavailable(f"the store cannot be read: {error}") from error
        return [logged(values) for values in rows]

    def model(self, model_id: str) -> ModelRow | None:
        values = self._connection.execute(SELECT_MODEL, (model_id,)).fetchone()
        return None if values is None else ModelRow(*values)

    def close(self) -> None:
        self._connection.close()


def read_version(connection: apsw.Connection) -> tuple[int, int]:
    application = connection.execute("PRAGMA application_id").get
    version = connection.execute("PRAGMA user_version").get
    return int(application), int(version)


def check_version(name: str, application: int, version: int) -> None:
    """Refuse a file that is no store, or one that a newer latentbandits wrote."""
    if application != APPLICATION_ID:
        raise StoreError(f"{name} is a SQLite file, but not a store of latentbandits")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{name} has schema version {version}; this latentbandits knows up to "
            f"{SCHEMA_VERSION}: upgrade latentbandits, or use another store"
        )
