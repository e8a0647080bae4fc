"""Every store keeps the promises of the protocol; each refuses what it must."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import apsw
import psycopg
import pytest

from latentbandits.serving.errors import Contention, StoreError, StoreUnavailable
from latentbandits.serving.stores import open_log, open_store
from latentbandits.serving.stores.postgresql import PostgresqlStore
from latentbandits.serving.stores.schema import SCHEMA_VERSION
from latentbandits.serving.stores.sqlite import APPLICATION_ID, MemoryStore, SqliteStore
from latentbandits.testing import check_store
from latentbandits.testing.stores import session
from tests.unit.old_tables import for_postgresql, old_statements


def test_memory() -> None:
    store = MemoryStore()
    check_store(lambda: store)


def test_sqlite(tmp_path: Path) -> None:
    check_store(lambda: SqliteStore(tmp_path / "s.sqlite"))


def test_postgresql(postgresql_url: str) -> None:
    check_store(lambda: PostgresqlStore(postgresql_url))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_hold_every_text_is_refused(
    postgresql_url: str, encoding: str
) -> None:
    name = f"in_{encoding.lower()}"
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")  # type: ignore[call-overload]
        connection.execute(  # type: ignore[call-overload]
            f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0"
        )
    url = f"{postgresql_url.rpartition('/')[0]}/{name}"
    for opened in (open_store, open_log):
        with pytest.raises(StoreError, match=f"has the encoding {encoding}.*ENCODING 'UTF8'"):
            opened(url)


def test_conformance_catches_a_store_that_loses_a_rollback() -> None:
    class Forgetful(MemoryStore):
        def rollback(self) -> None:
            self._run("COMMIT")

    store = Forgetful()
    with pytest.raises(AssertionError, match="rollback"):
        check_store(lambda: store)


def test_a_second_process_is_told_who_holds_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    code = (
        "import sys\nfrom latentbandits.serving.stores.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=f"in use by process {holder.pid} on "):
            SqliteStore(path)
        holder.kill()
        holder.wait()
        SqliteStore(path).close()  # a killed holder holds nothing
    finally:
        holder.kill()
        holder.communicate()


def test_an_older_sqlite_store_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    old = apsw.Connection(str(path))
    for statement in old_statements(version=1):
        old.execute(statement)
    old.execute(
        "INSERT INTO sessions VALUES (1, 'ann', 'policy', 'm', 1, 5, 0, 0, 0.0, 1, x'', 1, "
        "NULL, NULL)"
    )
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.execute("PRAGMA user_version = 1")
    old.close()
    store = SqliteStore(path)
    store.begin()
    assert [row.name for row in store.open_since(5)] == ["ann"]
    store.commit()
    store.close()
    after = apsw.Connection(str(path))
    assert after.execute("PRAGMA user_version").get == SCHEMA_VERSION
    index = "SELECT count(*) FROM sqlite_schema WHERE name = 'sessions_unseen_open'"
    assert after.execute(index).get
    after.close()


def test_a_newer_sqlite_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    SqliteStore(path).close()
    newer = apsw.Connection(str(path))
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    for opener in (open_store, open_log):
        with pytest.raises(StoreError, match="schema version 99"):
            opener(f"sqlite:{path}")
    after = apsw.Connection(str(path))
    assert after.execute("PRAGMA user_version").get == 99
    after.close()


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(StoreError, match="not a store of latentbandits"):
        SqliteStore(other)
    text = tmp_path / "text"
    text.write_text("hello " * 1000)
    with pytest.raises(StoreError, match="file is not a database"):
        SqliteStore(text)


@pytest.mark.parametrize("url", ["", "sqlite:", "redis://x", "memory:"])
def test_unknown_stores_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="is not a store"):
        open_store(url)


def test_postgresql_versions(postgresql_url: str) -> None:
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        for statement in old_statements(version=1):
            connection.execute(for_postgresql(statement))
        connection.execute("CREATE TABLE schema_version (version INTEGER)")
        connection.execute("INSERT INTO schema_version VALUES (1)")
        PostgresqlStore(postgresql_url).close()
        row = connection.execute("SELECT version FROM schema_version").fetchone()
        assert row == (SCHEMA_VERSION,)
        connection.execute("UPDATE schema_version SET version = 99")
    with pytest.raises(StoreError, match="schema version 99"):
        PostgresqlStore(postgresql_url)


def test_postgresql_locks_a_session_and_numbers_processes(postgresql_url: str) -> None:
    first, second = PostgresqlStore(postgresql_url), PostgresqlStore(postgresql_url)
    assert first.node != second.node
    first.begin()
    first.add_session(session(1, "ann"))
    first.commit()
    first.begin()
    assert first.session(1) is not None
    second.begin()
    second._run("SET LOCAL lock_timeout = '200ms'")
    with pytest.raises(Contention):
        second.session(1)
    second.rollback()
    first.commit()
    second.begin()
    assert second.session(1) is not None
    second.commit()
    first.close()
    second.close()


def test_postgresql_recovers_from_a_lost_connection(postgresql_url: str) -> None:
    store = PostgresqlStore(postgresql_url)
    store.begin()
    store.add_session(session(1, "ann"))
    store.commit()
    assert store._connection is not None
    with psycopg.connect(postgresql_url, autocommit=True) as other:
        pid = store._connection.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
    with pytest.raises(StoreUnavailable):
        store.begin()
    store.begin()
    assert store.session(1) is not None
    store.commit()
    store.close()


def test_the_holder_file_is_json(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    assert set(json.loads((tmp_path / "s.sqlite.lock").read_text())) == {"pid", "host", "since"}
    store.close()
