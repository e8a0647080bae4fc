"""All rows of a store as of one moment, for `check` and `backup`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import apsw

from latentbandits.serving.errors import Damaged, StoreError, StoreUnavailable
from latentbandits.serving.stores import page_checksums
from latentbandits.serving.stores.schema import SCHEMA_VERSION
from latentbandits.serving.stores.sql import Row
from latentbandits.serving.stores.sqlite import (
    END,
    check_version,
    describe,
    is_damage,
    read_version,
)

_PAGE = 500


class Tables(Protocol):
    """A consistent view of a store's tables, while other processes write."""

    @property
    def place(self) -> str:
        """The name of the store, for messages."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Run one SELECT with ? for its values."""

    def end(self) -> int:
        """Return the last position of the log, also where it was forgotten."""

    def file_problems(self) -> Iterator[str]:
        """Yield problems of the file itself, besides those of its rows."""


def pages(tables: Tables, columns: str, table: str, key: str) -> Iterator[Row]:
    """Yield all rows of a table in the order of a key, which must be the first column."""
    after: Any = None
    while True:
        where = "" if after is None else f" WHERE {key} > ?"
        rows = list(
            tables.run(
                f"SELECT {columns} FROM {table}{where} ORDER BY {key} LIMIT {_PAGE}",
                () if after is None else (after,),
            )
        )
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


class SqliteTables:
    """Reads a file in one read transaction; the process that holds it goes on writing."""

    def __init__(self, path: str, connection: apsw.Connection) -> None:
        self.place = path
        self._connection = connection

    def run(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        try:
            yield from self._connection.execute(statement, values)
        except apsw.Error as error:
            kind = Damaged if is_damage(error) else StoreUnavailable
            raise kind(f"{self.place} cannot be read: {describe(error)}") from None

    def end(self) -> int:
        return next((int(row[0]) for row in self.run(END)), 0)

    def file_problems(self) -> Iterator[str]:
        if not page_checksums.are_on(self._connection):
            yield f"{self.place} has no page checksums: start the service on it once"
        try:
            for (line,) in self._connection.execute("PRAGMA integrity_check(20)"):
                if line != "ok":
                    yield f"{self.place}: {line}"
        except apsw.Error as error:
            yield f"{self.place}: {describe(error)}"


@contextmanager
def sqlite_tables(path: str) -> Iterator[SqliteTables]:
    """Open a SQLite file for reading, as of one moment."""
    if not Path(path).is_file():
        raise StoreError(f"there is no store at {path}")
    connection = None
    try:
        connection = page_checksums.open_file(path, apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(2_000)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        check_current(path, *read_version(connection))
        yield SqliteTables(path, connection)
    except apsw.Error as error:
        raise StoreError(f"cannot read {path}: {describe(error)}") from None
    finally:
        if connection is not None:
            with suppress(apsw.Error):
                connection.close(True)


def check_current(path: str, application: int, version: int) -> None:
    """Raise StoreError unless the store has the current schema."""
    check_version(path, application, version)
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by an older version: start `latentbandits serve` on it once, "
            "which brings it up to date"
        )
