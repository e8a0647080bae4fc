"""Order from the store: whatever the clock does, ids are unique and readers miss nothing."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import psycopg
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from latentbandits import GaussianArms
from latentbandits.serving.check import check
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import ActionNames, pack
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.errors import Contention, StoreUnavailable
from latentbandits.serving.log import Cursors, log_entries, reward_entries
from latentbandits.serving.records import LoggedEvent
from latentbandits.serving.stores import open_tables
from latentbandits.serving.stores.postgresql import PostgresqlStore
from latentbandits.serving.stores.protocol import LogReader
from latentbandits.serving.stores.schema import ADDED
from latentbandits.serving.stores.sqlite import SqliteStore
from latentbandits.serving.stores.sqlite_file import open_file
from latentbandits.testing.stores import decision, reward
from tests.unit.engine_driver import ARMS, Driver, session_view
from tests.unit.old_tables import STORE, for_postgresql, old_statements

DATA = Path(__file__).parents[1] / "data"


def test_clocks_that_jump_across_restarts(tmp_path: Path) -> None:
    """Minus an hour, minus seven seconds, plus an hour: nothing is refused, lost or repeated."""
    acknowledged: list[str] = []
    seen: list[LoggedEvent] = []
    position = 0
    for jump in (0, -3600, 3600, -7, -3600, 7):
        store = SqliteStore(tmp_path / "s.sqlite")
        driver = Driver(ARMS, store, session_ttl=1e6, retention=1e6)
        driver.clock.now += jump * 1000
        for i in range(20):
            decided = driver.ask(f"user {i % 5}")
            driver.tell(decided, 0.5)
            acknowledged.append(decided.decision_id)
            new = driver.ask(f"new {jump} {i} {len(acknowledged)}")
            acknowledged.append(new.decision_id)
        driver.delete("user 1")
        acknowledged = [i for i in acknowledged if store.log_reader() and _kept(driver, i)]
        reader = store.log_reader()
        while page := reader.read(position, 7):
            seen += page
            position = page[-1].position
        reader.close()
        store.close()
    results = [_id(event) for event in seen if event.reward is None]
    assert len(results) == len(set(results)), "each decision is seen once"
    assert set(acknowledged) <= set(results), "every acknowledged decision is seen"
    assert [e.position for e in seen] == sorted({e.position for e in seen})


def _kept(driver: Driver, decision_id: str) -> bool:
    with driver.engine.transaction():
        return driver.store.decision(int(decision_id[:16], 16)) is not None


def _id(event: LoggedEvent) -> str:
    return f"{event.decision.order:016x}{event.decision.token:016x}"


def test_a_deleted_end_of_the_log_is_not_numbered_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store)
    first = driver.ask("ann")
    reader = store.log_reader()
    (event,) = reader.read(0, 10)
    driver.delete("ann")
    store.close()
    store = SqliteStore(tmp_path / "s.sqlite")
    again = Driver(ARMS, store)
    second = again.ask("bob")
    assert second.decision_id > first.decision_id
    fresh = store.log_reader()
    assert [_id(e) for e in fresh.read(event.position, 10)] == [second.decision_id]
    store.close()


def _follow(reader: LogReader, position: int, seen: list[LoggedEvent]) -> int:
    while page := reader.read(position, 5):
        seen += page
        position = page[-1].position
    return position


def test_a_transaction_that_commits_late_is_not_missed(postgresql_url: str) -> None:
    """Process A holds its transaction open while B, whose clock is 15 s ahead, commits."""
    engines = []
    for seconds in (0, 15):
        store = PostgresqlStore(postgresql_url)
        engines.append(
            Engine(store, EngineSettings(), lambda s=seconds: 1_700_000_000_000 + s * 1000)  # type: ignore[misc]
        )
    a, b = engines
    with a.transaction():
        a.start_with(pack(ARMS, "arms"))
    reader = a.store.log_reader()
    seen: list[LoggedEvent] = []
    position = _follow(reader, 0, seen)
    a.batch.begin()
    early = a.decide(DecisionRequest("ann"))  # a lower order than all that follow
    with b.transaction():
        other = b.decide(DecisionRequest("bob"))
        b.reward(RewardReport(other.decision_id, 0.5))
    position = _follow(reader, position, seen)
    assert [_id(e) for e in seen] == [other.decision_id] * 2, "others are seen at once"
    a.batch.commit()
    with b.transaction():
        b.reward(RewardReport(early.decision_id, 0.25))
    position = _follow(reader, position, seen)
    assert [(_id(e), e.reward is not None) for e in seen] == [
        (other.decision_id, False),
        (other.decision_id, True),
        (early.decision_id, False),
        (early.decision_id, True),
    ], "the order is that of the commits"
    for engine in engines:
        engine.store.close()
    reader.close()


def test_readers_of_two_writers_miss_nothing(postgresql_url: str) -> None:
    first = PostgresqlStore(postgresql_url)
    engine = Engine(first)
    with engine.transaction():
        engine.start_with(pack(ARMS, "arms"))
    done = threading.Event()
    acknowledged: list[list[str]] = [[], [], []]

    def write(number: int) -> None:
        store = PostgresqlStore(postgresql_url)
        mine = Engine(store, EngineSettings(), lambda: 1_700_000_000_000 - number * 15_000)
        for i in range(40):
            with mine.transaction():
                decided = mine.decide(DecisionRequest(f"{number}-{i % 4}"))
                mine.reward(RewardReport(decided.decision_id, 0.1))
            acknowledged[number].append(decided.decision_id)
        store.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    reader = first.log_reader()
    seen: list[LoggedEvent] = []
    position = 0
    while any(thread.is_alive() for thread in threads):
        position = _follow(reader, position, seen)
    done.set()
    _follow(reader, position, seen)
    reader.close()
    first.close()
    for number in range(3):
        mine = [
            _id(e) for e in seen if e.reward is None and e.session_name.startswith(f"{number}-")
        ]
        assert mine == acknowledged[number]
    assert len({(_id(e), e.reward is None) for e in seen}) == len(seen) == 240


def test_inserts_never_overwrite(tmp_path: Path) -> None:
    from latentbandits.serving.errors import StoreUnavailable
    from latentbandits.testing.stores import decision, session

    store = SqliteStore(tmp_path / "s.sqlite")
    store.begin()
    store.add_session(session(1, "ann"))
    store.add_decisions([decision(5, 1)])
    store.commit()
    for attempt in (lambda: store.add_session(session(1, "bob")),
                    lambda: store.add_decisions([decision(5, 1, action="b")])):  # fmt: skip
        store.begin()
        with pytest.raises(StoreUnavailable, match="UNIQUE"):
            attempt()
        store.rollback()
    store.begin()
    assert store.session(1) == session(1, "ann")
    assert store.decision(5) == decision(5, 1)
    store.commit()
    store.close()


# stores of version 0.1.0


def old_store(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "old.sqlite"
    path.write_bytes(gzip.decompress(STORE.read_bytes()))
    expected: dict[str, Any] = json.loads(
        gzip.decompress((DATA / "store-0.1.0.json.gz").read_bytes())
    )
    return path, expected


def check_upgraded(store: Any, expected: dict[str, Any]) -> None:
    settings = EngineSettings(holdout_share=0.3, session_ttl=1e6)
    engine = Engine(store, settings, lambda: expected["now"] + 1000)
    with engine.transaction():
        for name, old in expected["views"].items():
            view = session_view(engine, name)
            assert (view.session, view.round, view.rewards) == (
                old["session"], old["round"], old["rewards"],
            )  # fmt: skip
            assert view.group == old["arm"]
            assert view.started == old["started"]
            # Written on another processor, whose exp may differ in the last bit.
            assert view.state_probabilities == pytest.approx(old["state_probabilities"], rel=1e-14)
            for event, was in zip(view.history, old["history"], strict=True):
                assert event.decision_id == was["decision_id"]
                assert (event.time, event.reward_time) == (was["time"], was["reward_time"])
                assert (event.reward, event.reward_status) == (was["reward"], was["reward_status"])
        again = engine.decide(DecisionRequest("ann", request_id="r1"))
        assert again.decision_id == expected["request"]["decision_id"]
        told = engine.reward(RewardReport(expected["waiting"]["decision_id"], 0.5))
        assert told.status == "applied"
        new = engine.decide(DecisionRequest("after"))
    assert new.decision_id > max(row[0] for row in expected["log"])
    assert engine.statistics.counts["decisions"] == expected["counts"]["decisions"] + 1
    reader = store.log_reader()
    events = reader.read(0, 1000)
    reader.close()
    logged = {
        _id(e): [e.session_name, e.decision.round, e.decision.action, e.decision.propensity]
        for e in events
        if e.reward is None
    }
    for decision_id, name, round_, action, propensity, _, _ in expected["log"]:
        assert logged[decision_id] == [name, round_, action, propensity]
    rewards = {_id(e): e.reward.value for e in events if e.reward is not None}
    was = {row[0]: row[5] for row in expected["log"] if row[5] is not None}
    assert rewards == {**was, expected["waiting"]["decision_id"]: 0.5}


def test_a_store_of_version_0_1_0_is_opened(tmp_path: Path) -> None:
    path, expected = old_store(tmp_path)
    store = SqliteStore(path)
    assert store.warnings == []
    check_upgraded(store, expected)
    store.close()
    again = SqliteStore(path)
    assert again.warnings == []
    again.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_postgresql_store_of_version_0_1_0_is_opened(tmp_path: Path, postgresql_url: str) -> None:
    path, expected = old_store(tmp_path)
    old = apsw.Connection(str(path))
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        for statement in old_statements():
            connection.execute(for_postgresql(statement))
        for table in ("sessions", "decisions", "models", "activations", "notes"):
            for row in old.execute(f"SELECT * FROM {table}"):
                marks = ", ".join(["%s"] * len(row))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})".encode(), row)
        connection.execute("CREATE TABLE schema_version (version INTEGER)")
        connection.execute("INSERT INTO schema_version VALUES (2)")
    old.close()
    store = PostgresqlStore(postgresql_url)
    check_upgraded(store, expected)
    store.close()


def test_a_model_on_the_command_line_does_not_undo_a_swap(tmp_path: Path) -> None:
    other = pack(GaussianArms(np.random.default_rng(1).random((2, 4)), 0.3), "other")
    mine = pack(ARMS, "mine")
    for activate, expected, why in (
        (False, mine.id, "is new to this store"),
        (False, mine.id, "this store had active"),
        (None, other.id, ""),
        (False, other.id, "give --activate to go back"),
        (True, mine.id, "--activate was given"),
        (False, mine.id, "this store had active"),
    ):
        store = SqliteStore(tmp_path / "s.sqlite")
        engine = Engine(store)
        with engine.transaction():
            if activate is None:
                engine.activate(other)
            else:
                assert why in engine.start_with(mine, activate=activate)
        assert engine.library.active.model == expected
        store.close()


# stores of schema version 4, written by the code of commit 136f829


def old_rows(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "schema4.sqlite"
    path.write_bytes(gzip.decompress((DATA / "store-schema-4.sqlite.gz").read_bytes()))
    return path, json.loads(gzip.decompress((DATA / "store-schema-4.json.gz").read_bytes()))


def check_migrated(store: Any, expected: dict[str, Any]) -> None:
    """Compare a migrated store with what the older version read from it, and go on with it."""
    settings = EngineSettings(holdout_share=0.3, session_ttl=1e6)
    engine = Engine(store, settings, lambda: expected["now"] + 1000)
    reader = store.log_reader()
    events = reader.read(0, 1000)
    names = ActionNames(reader.model)
    cursors = Cursors(bytes.fromhex(expected["store_id"]))
    decisions = [log_entries(e, names, cursors)[0] for e in events if e.reward is None]
    rewards = [reward_entries(e, cursors)[0] for e in events if e.reward is not None]
    reader.close()
    assert to_builtins(decisions) == expected["decisions"]
    assert to_builtins(rewards) == expected["rewards"]
    with engine.transaction():
        for name, view in expected["sessions"].items():
            assert to_builtins(session_view(engine, name)) == view
        again = engine.decide(DecisionRequest("ann", request_id="r1"))
        assert again.decision_id == expected["request"]
        assert engine.reward(RewardReport(expected["open"], 0.5)).status == "applied"
        below = b'[["b",1,0,0.5,"exact"]]'
        listed = replace(decision(10**9, 1), click_model="cascade", below=below)
        store.add_decisions([listed])
        store.add_rewards([replace(reward(10**9 + 1, 10**9, 1, 1.0), token=b"used")])
    with engine.transaction():
        assert store.decision(10**9) == listed
        with pytest.raises((StoreUnavailable, Contention)):
            store.add_rewards([replace(reward(10**9 + 2, 10**9, 1, 1.0), token=b"used")])
        store.rollback()
        store.begin()


def test_a_store_of_schema_version_4_is_migrated(tmp_path: Path) -> None:
    path, expected = old_rows(tmp_path)
    store = SqliteStore(path)
    check_migrated(store, expected)
    store.close()
    with open_tables(f"sqlite:{path}") as tables:
        assert [p for p in check(tables).problems if "10000000" not in p] == []


def test_a_postgresql_store_of_schema_version_4_is_migrated(
    tmp_path: Path, postgresql_url: str
) -> None:
    """The tables of version 4 are those of today without the columns that were added."""
    path, expected = old_rows(tmp_path)
    PostgresqlStore(postgresql_url).close()
    old = open_file(str(path), apsw.SQLITE_OPEN_READWRITE)
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        for added in (line for lines in ADDED[1:] for line in lines):
            _, _, table, _, _, column, *_ = [*added.split(), "", "", ""]
            if added.startswith("ALTER"):
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}".encode())
        connection.execute("UPDATE schema_version SET version = 4; DELETE FROM notes")
        for table in ("sessions", "decisions", "rewards", "snapshots", "models", "activations",
                      "audit", "notes", "stream"):  # fmt: skip
            columns = [row[1] for row in old.execute(f"PRAGMA table_info({table})")]
            marks = ", ".join(["%s"] * len(columns))
            insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
            for row in old.execute(f"SELECT {', '.join(columns)} FROM {table}"):
                connection.execute(insert.encode(), row)
        connection.execute(
            "SELECT setval('orders', 100000), setval('positions', (SELECT max(position) "
            "FROM stream))"
        )
    old.close()
    store = PostgresqlStore(postgresql_url)
    check_migrated(store, expected)
    store.close()
