"""The statements that made the tables of version 0.1.0."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import apsw

STORE = Path(__file__).parents[1] / "data" / "store-0.1.0.sqlite.gz"
"""A store of that version, written by the code of commit 064b08a."""


def old_statements(*, version: int = 2) -> list[str]:
    """Return the statements of a version, as SQLite has them; version 1 has two indexes fewer."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(gzip.decompress(STORE.read_bytes()))
        file.flush()
        old = apsw.Connection(file.name)
        statements = [sql for (sql,) in old.execute("SELECT sql FROM sqlite_schema") if sql]
        old.close()
    return [sql for sql in statements if version == 2 or "sessions_seen" not in sql]


def for_postgresql(statement: str) -> bytes:
    """Return a statement with the types of PostgreSQL."""
    keyed = statement.replace("INTEGER PRIMARY KEY", "BIGINT PRIMARY KEY")
    return keyed.replace("BLOB", "BYTEA").encode()
