"""Sessions in one SQLite file: WAL, an fsync with every commit, one process at a time. Also in
memory, for trying things out: nothing outlives the process.
"""

from __future__ import annotations

import logging
import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import apsw

from latentbandits.serving.errors import (
    Damaged,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from latentbandits.serving.stores.schema import SCHEMA_VERSION, check_version, migrate
from latentbandits.serving.stores.sql import NOTES, Row, SqlReader, SqlStore, largest_order
from latentbandits.serving.stores.sqlite_file import (
    FileHolder,
    checksum_pages,
    open_file,
    pages_are_verified,
    prepare_pages,
    verify_pages,
)

Synchronous = Literal["FULL", "NORMAL"]
_log = logging.getLogger(__name__)
APPLICATION_ID = 0x6C62616E  # "lban"
_MARK = struct.Struct("<qI")  # a position and its checksum
_BUSY_MS = 2_000  # only a reader's checkpoint can hold the lock
_TOTALS = "statistics/"  # notes that can be computed from the log
_BLOCK = 1_000  # orders that are reserved at a time
_ERASING_SECONDS = 20.0  # between two erasures; the sweep begins a transaction every 30 s
_ERASING_SHARE = 0.05  # largest share of the time for erasures
_STREAM = (
    "CREATE TABLE stream (position INTEGER PRIMARY KEY AUTOINCREMENT, kind SMALLINT NOT NULL, "
    "id BIGINT NOT NULL)",
    "CREATE TABLE sequence (next BIGINT NOT NULL)",
    "INSERT INTO sequence VALUES (1)",
)
_END = "SELECT seq FROM sqlite_sequence"  # the last position, also where it was forgotten


class _SqliteDatabase(SqlStore):
    """A SQLite database that this process alone writes to, by one connection."""

    shared = False
    node = 0

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name  # for messages
        self._connection: apsw.Connection | None = None
        self.warnings: list[str] = []

    def _connect(self) -> apsw.Connection:
        """Open the database; `self._connection` is what must be closed if this fails halfway."""
        raise NotImplementedError

    def _failed(self, error: Exception) -> StoreUnavailable:
        """Return why a statement failed."""
        return _failure(error, f"the store {self._name} failed")

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            connection = self._connection or self._connect()
            return list(connection.execute(statement, values))
        except (apsw.Error, OSError) as error:
            raise self._failed(error) from error

    def _run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        try:
            connection = self._connection or self._connect()
            connection.executemany(statement, rows)
        except (apsw.Error, OSError) as error:
            raise self._failed(error) from error

    def _make_tables(self, connection: apsw.Connection, version: int) -> None:
        """Migrate the tables to the current schema."""

        def run(statement: str, values: Sequence[Any]) -> Iterator[Row]:
            return iter(
                connection.execute(
                    statement.replace("BIGINT PRIMARY KEY", "INTEGER PRIMARY KEY"), values
                )
            )

        connection.execute("BEGIN IMMEDIATE")
        first = migrate(run, version, _STREAM)
        if first is not None:
            connection.execute("UPDATE sequence SET next = ?", (first,))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")

    def reserve(self, floor: int) -> range:
        first = max(self._run("SELECT next FROM sequence")[0][0], floor + 1)
        self._run("UPDATE sequence SET next = ?", (first + _BLOCK,))
        return range(first, first + _BLOCK)

    def continue_sequences(self, end: int) -> None:
        self._run("UPDATE sequence SET next = ?", (largest_order(self._run) + _BLOCK,))
        self._run("DELETE FROM sqlite_sequence")
        self._run("INSERT INTO sqlite_sequence (name, seq) VALUES ('stream', ?)", (end,))

    def lock_activations(self) -> None:
        """Do nothing: there is only one process."""

    def lock_sessions(self, names: Sequence[str], decisions: Sequence[int]) -> None:
        """Do nothing: there is only one process."""

    def begin(self) -> None:
        self._events.clear()
        self._run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._number_events()
        self._run("COMMIT")

    def rollback(self) -> None:
        self._events.clear()
        if self._connection is not None and self._connection.in_transaction:
            self._run("ROLLBACK")

    def _number_events(self) -> int | None:
        """Give the events of this transaction their positions; returns the last one."""
        if not self._events:
            return None
        self._run_many("INSERT INTO stream (kind, id) VALUES (?, ?)", self._events)
        self._events.clear()
        assert self._connection is not None
        return self._connection.last_insert_rowid()


class MemoryStore(_SqliteDatabase):
    """A database in memory, for trying things out and for tests; it ends with the process."""

    durable = False
    summed = False  # nobody else can alter its rows

    def __init__(self) -> None:
        super().__init__("in memory")
        self._connection = apsw.Connection(":memory:")
        self._make_tables(self._connection, 0)

    def log_reader(self) -> SqliteReader:
        """Return a reader on the same connection, for the thread that writes."""
        assert self._connection is not None
        return SqliteReader("the store in memory", self._connection)

    def close(self) -> None:
        """Do nothing: readers of the log may still read. The last one frees the memory."""


class Mark:
    """The position of the last commit, in a file next to the database, to detect a lost WAL.

    It is written after each commit, without waiting for the disk: it may lag behind the database
    after a power cut, and never runs ahead of it. A database whose last position is smaller has
    lost commits, because its write-ahead log was cut, damaged or removed.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        """Return the position; 0 where there is none that can be trusted."""
        data = os.pread(self._descriptor, _MARK.size, 0)
        if len(data) == _MARK.size:
            position, expected = _MARK.unpack(data)
            if zlib.crc32(data[:8]) == expected:
                return int(position)
        return 0

    def write(self, position: int) -> None:
        """Write the position of the last commit."""
        expected = zlib.crc32(position.to_bytes(8, "little"))
        with suppress(OSError):  # the commit has succeeded: a stale mark is better than an error
            os.pwrite(self._descriptor, _MARK.pack(position, expected), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class SqliteStore(_SqliteDatabase):
    """`synchronous` FULL: a commit returns after its fsync. NORMAL: a power cut may lose the
    last commits (a killed process does not).
    """

    durable = True

    def __init__(
        self, path: str | Path, synchronous: Synchronous = "FULL", checkpoint_pages: int = 1000
    ) -> None:
        self._path = Path(path)
        super().__init__(self._path.name)
        self._checkpoint_pages = checkpoint_pages
        self._synchronous = synchronous
        self._mark: Mark | None = None
        self._deleted = False  # whether bytes of deleted sessions may still be in the files
        self._erase_after = 0.0
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._holder = FileHolder(Path(f"{self._path}.lock"), str(self._path))
        except OSError as error:
            raise StoreError(f"cannot open {self._path}: {error.strerror}") from None
        try:
            _make_private(self._path)
            log = Path(f"{self._path}-wal")
            self._deleted = log.exists() and log.stat().st_size > 0  # a process was killed
            connection = self._migrate(self._connect())
            self._mend_notes(connection)
            self._compare_mark(connection)
        except (apsw.Error, OSError, StoreUnavailable, StoreError) as error:
            self._disconnect()
            self._holder.release()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"cannot open {self._path}: {describe(error)}") from None

    def _connect(self) -> apsw.Connection:
        """Open the file; `self._connection` is what must be closed if this fails halfway."""
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = open_file(str(self._path), flags)
        self._connection = connection
        connection.set_busy_timeout(_BUSY_MS)
        if self._path.stat().st_size == 0:
            prepare_pages(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {self._checkpoint_pages}")
        connection.execute("PRAGMA secure_delete = ON")  # a deleted session leaves no bytes behind
        connection.execute("PRAGMA cache_size = -16384")
        connection.execute("PRAGMA temp_store = MEMORY")  # independent of TMPDIR
        self._mark = Mark(Path(f"{self._path}.mark"))
        return connection

    def _migrate(self, connection: apsw.Connection) -> apsw.Connection:
        """Migrate the tables to the current schema; return the connection to use."""
        version = int(connection.execute("PRAGMA user_version").get)
        if version > 0 or connection.execute("SELECT count(*) FROM sqlite_schema").get > 0:
            _check_file(connection, str(self._path))
        if version < SCHEMA_VERSION:
            self._make_tables(connection, version)
        if not pages_are_verified(connection):
            with suppress(apsw.FullError):
                checksum_pages(connection)
            self._disconnect()
            connection = self._connect()
        if not pages_are_verified(connection):
            self.warnings.append(
                f"{self._path} has no page checksums (disk full, or an apsw without cksumvfs): "
                "damage to the file is noticed by its rows' checksums alone"
            )
        return connection

    def _mend_notes(self, connection: apsw.Connection) -> None:
        """Drop damaged totals: unlike other notes, they can be computed from the log."""
        damaged = False
        try:
            rows = list(connection.execute(NOTES.select))
        except apsw.Error as error:
            if not _is_damage(error):
                raise
            damaged = True
            verify_pages(connection, on=False)  # each row also has a checksum
            rows = list(connection.execute(NOTES.select))
        kept = [row for row in rows if _is_whole(row)]
        lost = [row for row in rows if not _is_whole(row)]
        if damaged or lost:
            for name, *_ in lost:
                if not str(name).startswith(_TOTALS):
                    raise StoreError(
                        f"{self._path} is damaged: its note {name!r} cannot be computed anew. "
                        "Restore a backup"
                    )
            with connection:
                connection.execute("DELETE FROM notes")
                connection.executemany(NOTES.insert, kept)
            connection.execute("PRAGMA wal_checkpoint")
            self.warnings.append(
                f"{self._path}: damaged notes were mended; totals are computed anew from the log"
            )
        if damaged:
            verify_pages(connection, on=True)

    def _compare_mark(self, connection: apsw.Connection) -> None:
        """Report commits that were acknowledged and are gone."""
        assert self._mark is not None
        kept = int(connection.execute(_END).get or 0)
        marked = self._mark.read()
        if marked > kept:
            self.warnings.append(
                f"{self._path} has lost its last {marked - kept} events, which had been "
                "acknowledged: its write-ahead log (-wal) was cut, damaged or removed. Restore a "
                "backup, or go on without them"
            )
            self.begin()
            self.leave_cursors(kept)  # those of the lost events would skip new ones
            self.commit()
        self._mark.write(kept)

    def _failed(self, error: Exception) -> StoreUnavailable:
        """Close the connection, which the next transaction opens anew; return the reason."""
        self._disconnect()
        return super()._failed(error)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close(True)  # an open transaction is rolled back
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.close()

    def begin(self) -> None:
        if self._deleted and time.monotonic() >= self._erase_after:
            self._erase()
        super().begin()

    def commit(self) -> None:
        position = self._number_events()
        try:
            self._run("COMMIT")
        except StoreUnavailable as error:
            if isinstance(error.__cause__, apsw.IOError):
                raise OutcomeUnknown(f"{error.message}, while it committed") from error
            raise
        if position is not None and self._mark is not None:
            self._mark.write(position)

    def delete_sessions(self, keys: Sequence[int]) -> None:
        super().delete_sessions(keys)
        self._deleted = self._deleted or bool(keys)

    def _erase(self) -> None:
        """Remove the traces of deleted sessions in the files; if that is not possible now, later.

        `secure_delete` overwrites deleted rows, but a page that was divided keeps bytes of the rows
        that moved, and the write-ahead log keeps old pages until it is truncated.
        """
        begun = time.monotonic()
        try:
            connection = self._connection or self._connect()
            with connection:
                _write_sessions_anew(connection)
            connection.set_busy_timeout(0)  # a reader of the log is not waited for
            try:
                ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.set_busy_timeout(_BUSY_MS)
        except (apsw.Error, OSError) as error:
            _log.warning("forgotten sessions are erased from the file later: %s", describe(error))
            busy = True
        self._deleted = bool(busy)
        now = time.monotonic()
        self._erase_after = now + max(_ERASING_SECONDS, (now - begun) / _ERASING_SHARE)

    def close(self) -> None:
        if self._deleted and self._connection is not None:
            self._erase()
        self._disconnect()
        self._holder.release()

    def log_reader(self) -> SqliteReader:
        return open_reader(self._path, "the store")


class SqliteReader(SqlReader):
    """Reads a database beside the process that holds it: neither waits for the other (WAL)."""

    def __init__(self, place: str, connection: apsw.Connection) -> None:
        super().__init__()
        self.place = place
        self._connection = connection

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return list(self._connection.execute(statement, values))
        except apsw.Error as error:
            raise _failure(error, f"{self.place} cannot be read") from error

    def end(self) -> int:
        return next((int(position) for (position,) in self._run(_END)), 0)

    def freeze(self) -> None:
        self._run("BEGIN")
        self._run("PRAGMA user_version")  # the moment is that of the first statement

    def file_problems(self) -> Iterator[str]:
        if not pages_are_verified(self._connection):
            yield f"{self.place} has no page checksums: start the service on it once"
        try:
            for (line,) in self._connection.execute("PRAGMA integrity_check(20)"):
                if line != "ok":
                    yield f"{self.place}: {line}"
        except apsw.Error as error:
            yield f"{self.place}: {describe(error)}"

    def close(self) -> None:
        """Close a file; a database in memory has no other connection."""
        if self._connection.filename:
            with suppress(apsw.Error):
                self._connection.close(True)


def open_reader(path: str | Path, place: str | None = None) -> SqliteReader:
    """Return a reader of a file; StoreError if it is no store or of another version.

    Error messages name it `place`, by default its path.
    """
    if not Path(path).is_file():
        raise StoreError(f"there is no store at {path}")
    connection = None
    try:
        connection = open_file(str(path), apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("PRAGMA query_only = ON")
        _check_file(connection, str(path), exactly=True)
    except (apsw.Error, StoreError) as error:
        if connection is not None:
            connection.close(True)
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"cannot read {path}: {describe(error)}") from None
    return SqliteReader(place or str(path), connection)


def _is_whole(note: Row) -> bool:
    try:
        NOTES.verified(note)
    except Damaged:
        return False
    return True


def _make_private(path: Path) -> None:
    """Let nobody but the owner read the store's files; SQLite gives -wal and -shm their mode."""
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in (path, *(Path(f"{path}{end}") for end in ("-wal", "-shm", ".lock", ".mark"))):
        with suppress(OSError):
            file.chmod(0o600)


def _has_damaged_page(error: BaseException) -> bool:
    return getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_DATA


def _failure(error: BaseException, message: str) -> StoreUnavailable:
    """Return the refusal with this message; it is Damaged if the file was altered."""
    kind = Damaged if _is_damage(error) else StoreUnavailable
    return kind(f"{message}: {describe(error)}")


def _is_damage(error: BaseException) -> bool:
    return isinstance(error, apsw.CorruptError | apsw.NotADBError) or _has_damaged_page(error)


def describe(error: BaseException) -> str:
    """Return SQLite's reason in words."""
    if _has_damaged_page(error):
        return "a page of the file is damaged (its checksum differs)"
    return str(error)


def _write_sessions_anew(connection: apsw.Connection) -> None:
    """Copy the rows of sessions into new pages; the old pages are overwritten with zeros."""
    schema = "SELECT sql FROM sqlite_schema WHERE tbl_name = 'sessions' AND sql IS NOT NULL"
    table: str = connection.execute(f"{schema} AND type = 'table'").get
    indexes = [sql for (sql,) in connection.execute(f"{schema} AND type = 'index'")]
    connection.execute(f"CREATE TABLE sessions_anew {table[table.index('(') :]}")
    connection.execute("INSERT INTO sessions_anew SELECT * FROM sessions ORDER BY key")
    connection.execute("DROP TABLE sessions")
    connection.execute("ALTER TABLE sessions_anew RENAME TO sessions")
    for sql in indexes:
        connection.execute(sql)


def _check_file(connection: apsw.Connection, name: str, *, exactly: bool = False) -> None:
    """Refuse a file that is no store, or of a version that cannot be read."""
    if connection.execute("PRAGMA application_id").get != APPLICATION_ID:
        raise StoreError(f"{name} is a SQLite file, but not a store of latentbandits")
    check_version(name, connection.execute("PRAGMA user_version").get, exactly=exactly)
