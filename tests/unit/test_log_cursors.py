"""Cursors into the log: of this store, of copies of it, and of events that it no longer has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import psycopg
import pytest

from latentbandits.loop.kept_log import KeptLog, StoreSource
from latentbandits.serving.backup import backup
from latentbandits.serving.errors import UnknownCursor
from latentbandits.serving.export import export
from latentbandits.serving.stores import open_log, open_store, open_tables
from tests.unit.engine_driver import ARMS, Driver

MakeUrl = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def make_url(request: pytest.FixtureRequest, tmp_path: Path) -> MakeUrl:
    """Return a function that returns the URL of a new store each time."""
    made = 0
    postgresql = request.param == "postgresql"
    server = request.getfixturevalue("postgresql_server") if postgresql else ""

    def make() -> str:
        nonlocal made
        made += 1
        if not server:
            return f"sqlite:{tmp_path / f'{made}.sqlite'}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS copy{made} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE copy{made}".encode())
        return f"{server.rpartition('/')[0]}/copy{made}"

    return make


def opened(url: str) -> Driver:
    return Driver(ARMS, open_store(url))


def play(driver: Driver, session: str, rounds: int) -> None:
    for _ in range(rounds):
        driver.tell(driver.ask(session), 1.0)


def copied(url: str, out: str) -> str:
    with open_tables(url) as tables:
        backup(tables, out, open_store)  # type: ignore[arg-type]
    return out


def exported(url: str, folder: Path, since: str = "") -> tuple[list[str], str]:
    """Return the sessions of the exported rows, and the next cursor."""
    reader = open_log(url)
    try:
        done = export(reader, str(folder / "log.parquet"), since)
    finally:
        reader.close()
    return pl.read_parquet(folder / "log.parquet")["session"].to_list(), done.next


def test_a_restored_store_takes_the_cursors_up_to_its_backup(
    make_url: MakeUrl, tmp_path: Path
) -> None:
    """The original and the copy go on to the same position; each refuses the other's cursors."""
    url = make_url()
    original = opened(url)
    play(original, "before", 3)
    _, before = exported(url, tmp_path)
    play(original, "between", 2)
    _, at_backup = exported(url, tmp_path)
    copy = copied(url, make_url())
    assert exported(copy, tmp_path, at_backup) == ([], at_backup), "nobody has written to it"
    play(original, "lost", 4)
    _, after = exported(url, tmp_path)
    restored = opened(copy)
    play(restored, "again", 4)
    rows, of_copy = exported(copy, tmp_path, before)
    assert rows == ["between"] * 2 + ["again"] * 4
    assert exported(copy, tmp_path, at_backup)[0] == ["again"] * 4
    assert of_copy[:8] != after[:8]
    assert of_copy[8:] == after[8:], "the same position, of another event"
    with pytest.raises(UnknownCursor, match=r"was made after that, at .* Leave `since` out"):
        exported(copy, tmp_path, after)
    with pytest.raises(UnknownCursor, match=r"is of another store: .* Leave `since` out"):
        exported(url, tmp_path, of_copy)
    assert exported(url, tmp_path, at_backup)[0] == ["lost"] * 4, "the original goes on"
    original.store.close()
    restored.store.close()


def test_one_backup_restored_twice_is_two_stores(make_url: MakeUrl, tmp_path: Path) -> None:
    url = make_url()
    original = opened(url)
    play(original, "ann", 3)
    original.store.close()
    saved = copied(url, make_url())
    first, second = (opened(copied(saved, make_url())) for _ in range(2))
    cursors = []
    for driver, name in ((first, "one"), (second, "two")):
        play(driver, name, 2)
        reader = driver.store.log_reader()
        cursors.append(export(reader, str(tmp_path / "log.parquet")).next)
        reader.close()
    reader = second.store.log_reader()
    with pytest.raises(UnknownCursor, match="another store"):
        export(reader, str(tmp_path / "log.parquet"), cursors[0])
    reader.close()
    first.store.close()
    second.store.close()


def test_the_end_stays_when_the_last_session_is_forgotten(
    make_url: MakeUrl, tmp_path: Path
) -> None:
    """Also in a copy: a cursor of forgotten events is no cursor beyond the end."""
    url = make_url()
    driver = opened(url)
    play(driver, "ann", 3)
    play(driver, "bob", 3)
    _, cursor = exported(url, tmp_path)
    driver.delete("bob")
    copy = copied(url, make_url())
    for store in (url, copy):
        assert exported(store, tmp_path, cursor)[0] == []
    driver.store.close()
    for store, name in ((url, "eve"), (copy, "kim")):
        driver = opened(store)
        play(driver, name, 1)
        assert exported(store, tmp_path, cursor)[0] == [name]
        driver.store.close()


def test_a_cursor_beyond_the_end_is_refused(make_url: MakeUrl, tmp_path: Path) -> None:
    url = make_url()
    driver = opened(url)
    play(driver, "ann", 1)
    _, cursor = exported(url, tmp_path)
    beyond = f"{cursor[:9]}{int(cursor[9:], 16) + 1:016x}"
    with pytest.raises(UnknownCursor, match=rf"{beyond} lies beyond the end of this store"):
        exported(url, tmp_path, beyond)
    driver.store.close()


def test_an_older_file_put_in_place_has_cursors_of_its_own(tmp_path: Path) -> None:
    """The file of the last commit tells that commits are gone, as where a log was cut."""
    path = tmp_path / "store.sqlite"
    url = f"sqlite:{path}"
    driver = opened(url)
    play(driver, "ann", 2)
    driver.store.close()
    _, before = exported(url, tmp_path)
    shutil.copy(path, tmp_path / "old.sqlite")
    driver = opened(url)
    play(driver, "bob", 3)
    driver.store.close()
    _, after = exported(url, tmp_path)
    shutil.copy(tmp_path / "old.sqlite", path)
    driver = opened(url)
    assert "has lost its last 6 events" in driver.store.warnings[0]
    play(driver, "eve", 3)
    assert exported(url, tmp_path, before)[0] == ["eve"] * 3
    with pytest.raises(UnknownCursor, match="was made after that"):
        exported(url, tmp_path, after)
    driver.store.close()


def test_relearning_refuses_what_a_restored_store_lost(make_url: MakeUrl, tmp_path: Path) -> None:
    url = make_url()
    original = opened(url)
    play(original, "ann", 3)
    kept = KeptLog(tmp_path / "work")
    kept.update(StoreSource(url))
    copy = copied(url, make_url())
    restored = opened(copy)
    play(restored, "eve", 2)
    assert len(kept.update(StoreSource(copy)).decisions) == 5, "read before the backup"
    play(original, "bob", 3)
    other = KeptLog(tmp_path / "other")
    other.update(StoreSource(url))
    with pytest.raises(ValueError, match=r"before it was restored .* remove that folder"):
        other.update(StoreSource(copy))
    original.store.close()
    restored.store.close()


def test_two_processes_that_start_at_once_have_one_id(postgresql_url: str) -> None:
    """The second waits until the first has drawn the ids, and takes them."""
    open_store(postgresql_url).close()
    found: list[Any] = []

    def start() -> None:
        driver = opened(postgresql_url)
        found.append(driver.engine.sessions._salt)
        driver.store.close()

    threads = [Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
