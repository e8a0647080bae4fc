"""`check`, `backup` and `export` on the command line, beside a process that holds the store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars
import psycopg
import pytest

from latentbandits.serving.backup import backup
from latentbandits.serving.check import check
from latentbandits.serving.engine.values import RewardReport
from latentbandits.serving.errors import Damaged, StoreError
from latentbandits.serving.export import export
from latentbandits.serving.stores import open_log, open_store, open_tables
from latentbandits.serving.stores.postgresql import PostgresqlStore
from latentbandits.serving.stores.schema import ADDED, SCHEMA_VERSION
from latentbandits.serving.stores.sql import SqlStore
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.processes.service import run_command
from tests.unit.engine_driver import ARMS, Driver


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    driver = Driver(ARMS, SqliteStore(tmp_path / "s.sqlite"), snapshot_rounds=5)
    for name in ("ann", "bob", "eve", "kim"):
        driver.play(name, 12, np.random.default_rng(1))
    driver.merge("ann", "bob")
    return driver


def open_sql_store(store: str) -> SqlStore:
    opened = open_store(store)
    assert isinstance(opened, SqlStore)
    return opened


def url(tmp_path: Path, name: str = "s.sqlite") -> str:
    return f"sqlite:{tmp_path / name}"


def problems(store: str) -> list[str]:
    with open_tables(store) as tables:
        return check(tables).problems


def test_check_finds_nothing_wrong_beside_a_running_process(driver: Driver, tmp_path: Path) -> None:
    done = run_command("check", "--store", url(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("all is well: 4 sessions, 48 decisions, 48 rewards, 3 snapshots")
    driver.store._connection.execute("UPDATE sessions SET rewards = 1 WHERE name = 'eve'")
    done = run_command("check", "--store", url(tmp_path), "--json")
    assert done.returncode == 1
    assert "of the table sessions is damaged" in json.loads(done.stdout)["problems"][0]
    driver.store.close()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE decisions SET action = 'zz' WHERE id = {decision}", "of the table decisions is"),
        ("UPDATE rewards SET value = 9 WHERE decision = {decision}", "of the table rewards is"),
        ("UPDATE sessions SET rewards = 1 WHERE name = 'eve'", "of the table sessions is damaged"),
        ("DELETE FROM rewards WHERE decision = {decision}", "session 'eve' states rewards 12"),
        ("DELETE FROM stream WHERE id = {decision}", "is not in the stream"),
        ("UPDATE models SET files = x'80'", "model "),
        ("UPDATE snapshots SET learned = 4", "of the table snapshots is damaged"),
        ("UPDATE notes SET value = x'00' WHERE name LIKE 'stat%'", "of the table notes is damaged"),
    ],
)
def test_check_names_the_place_of_damage(
    driver: Driver, tmp_path: Path, statement: str, problem: str
) -> None:
    eve = driver.session("eve").history[3].decision_id
    decision = int(eve[:16], 16)
    assert driver.store._connection is not None
    driver.store._connection.execute(statement.format(decision=decision))
    driver.store.close()
    assert any(problem in actual for actual in problems(url(tmp_path)))


def test_a_damaged_row_is_refused_and_the_others_go_on(driver: Driver) -> None:
    eve = driver.session("eve").history[3].decision_id
    assert driver.store._connection is not None
    driver.store._connection.execute(
        "UPDATE decisions SET action = 'zz' WHERE id = ?", (int(eve[:16], 16),)
    )
    with pytest.raises(Damaged, match=f"row {int(eve[:16], 16)} of the table decisions is damaged"):
        driver.session("eve")
    assert driver.session("kim").round == 12
    assert driver.ask("kim").round == 13
    driver.store.close()


def test_a_backup_is_a_store(driver: Driver, tmp_path: Path) -> None:
    done = run_command("backup", "--store", url(tmp_path), "--out", url(tmp_path, "copy.sqlite"))
    assert done.returncode == 0, done.stderr
    assert "48 decisions" in done.stdout
    views = [driver.session(name) for name in ("ann", "eve", "kim")]
    last = driver.ask("kim").decision_id
    driver.store.close()
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.sqlite"]
    assert (tmp_path / "copy.sqlite").stat().st_mode & 0o777 == 0o600
    assert problems(url(tmp_path, "copy.sqlite")) == []
    store = SqliteStore(tmp_path / "copy.sqlite")
    assert store.warnings == []
    restored = Driver(ARMS, store, snapshot_rounds=5)
    assert [restored.session(name) for name in ("ann", "eve", "kim")] == views
    assert restored.ask("kim").decision_id[:16] >= last[:16]
    store.close()
    with open_tables(url(tmp_path)) as tables, pytest.raises(StoreError, match="exists already"):
        backup(tables, url(tmp_path, "copy.sqlite"), open_sql_store)


def test_a_postgresql_store_of_version_3_is_migrated(
    driver: Driver, tmp_path: Path, postgresql_url: str
) -> None:
    """Its sessions have no attributes of users; all rows and their checksums stay."""
    views = [driver.session(name) for name in ("ann", "eve", "kim")]
    with open_tables(url(tmp_path)) as tables:
        backup(tables, postgresql_url, open_sql_store)
    driver.store.close()
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        for added in (line for lines in ADDED for line in lines if line.startswith("ALTER TABLE")):
            table, column = added.split()[2], added.split()[5]
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}".encode())
        connection.execute("UPDATE schema_version SET version = 3")
    moved = Driver(ARMS, PostgresqlStore(postgresql_url), snapshot_rounds=5)
    assert [moved.session(name) for name in ("ann", "eve", "kim")] == views
    assert moved.tell(moved.ask("kim"), 0.5) == "applied"
    moved.store.close()
    with psycopg.connect(postgresql_url) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchone() == (
            SCHEMA_VERSION,
        )
    assert [p for p in problems(postgresql_url) if not p.startswith("note: ")] == []


def test_a_store_moves_to_postgresql_and_back(
    driver: Driver, tmp_path: Path, postgresql_url: str
) -> None:
    views = [driver.session(name) for name in ("ann", "eve", "kim")]
    with open_tables(url(tmp_path)) as tables:
        backup(tables, postgresql_url, open_sql_store)
    assert [p for p in problems(postgresql_url) if not p.startswith("note: ")] == []
    moved = Driver(ARMS, PostgresqlStore(postgresql_url), snapshot_rounds=5)
    assert [moved.session(name) for name in ("ann", "eve", "kim")] == views
    new = moved.ask("new")
    moved.store.close()
    with open_tables(postgresql_url) as tables:
        backup(tables, url(tmp_path, "back.sqlite"), open_sql_store)
    home = Driver(ARMS, SqliteStore(tmp_path / "back.sqlite"), snapshot_rounds=5)
    assert home.tell(new, 0.5) == "applied"
    home.store.close()
    driver.store.close()


def test_store_files_are_private(driver: Driver, tmp_path: Path) -> None:
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
    driver.store.close()


def exported(tmp_path: Path, name: str, since: str = "") -> tuple[polars.DataFrame, str]:
    reader = open_log(url(tmp_path))
    done = export(reader, str(tmp_path / name), since)
    reader.close()
    path = tmp_path / name
    read = {".parquet": polars.read_parquet, ".csv": polars.read_csv, ".jsonl": polars.read_ndjson}
    return read[path.suffix](path), done.next


def test_late_rewards_and_corrections_are_in_the_next_export(
    driver: Driver, tmp_path: Path
) -> None:
    waiting, unrewarded = driver.ask("eve"), driver.ask("eve")
    first, cursor = exported(tmp_path, "one.parquet")
    assert len(first) == 50
    assert first["reward"].null_count() == 2
    corrected = driver.session("kim").history[2].decision_id
    driver.tell(waiting, 0.25)
    driver.correct(RewardReport(corrected, 0.75), "root")
    driver.correct(RewardReport(corrected, 0.5), "root")
    fresh = driver.ask("new")
    driver.tell(fresh, 1.0)
    second, cursor = exported(tmp_path, "two.parquet", cursor)
    rows = {row["decision_id"]: row for row in second.to_dicts()}
    assert set(rows) == {waiting.decision_id, corrected, fresh.decision_id}
    assert rows[waiting.decision_id]["reward"] == 0.25
    assert (rows[corrected]["reward"], rows[corrected]["reward_kind"]) == (0.5, "correction")
    both = polars.concat([first, second]).unique("decision_id", keep="last", maintain_order=True)
    whole, _ = exported(tmp_path, "whole.parquet")
    columns = ["decision_id", "reward", "reward_kind", "propensity", "group", "eligible"]
    left, right = (table.sort("decision_id")[columns] for table in (both, whole))
    assert left.equals(right)
    assert unrewarded.decision_id in set(whole["decision_id"])
    empty, after = exported(tmp_path, "three.parquet", cursor)
    assert (len(empty), after) == (0, cursor)
    driver.store.close()


def test_exports_in_every_format_agree_and_forgotten_sessions_vanish(
    driver: Driver, tmp_path: Path
) -> None:
    tables = [exported(tmp_path, name)[0] for name in ("a.parquet", "a.csv", "a.jsonl")]
    for table in tables[1:]:
        for column in ("decision_id", "session", "action", "reward", "propensity", "round"):
            kept = [str(value) for value in tables[0][column]]
            assert [str(value) for value in table[column]] == kept
    assert json.loads(tables[1]["eligible"][0]) == tables[0]["eligible"][0].to_list()
    driver.play("forgettable", 12, np.random.default_rng(2))
    driver.delete("forgettable")
    assert "forgettable" not in set(exported(tmp_path, "b.parquet")[0]["session"])
    driver.store.close()
    assert b"forgettable" not in (tmp_path / "s.sqlite").read_bytes(), "no bytes are left of it"


@pytest.mark.parametrize(
    ("since", "why"),
    [
        ("zz", "must be a cursor of an earlier page or export, such as "),
        ("0000000000000001", "must be a cursor of an earlier page or export, such as "),
        ("00000000-0000000000000001", "is of another store"),
    ],
)
def test_cursors_that_are_refused(driver: Driver, tmp_path: Path, since: str, why: str) -> None:
    reader = open_log(url(tmp_path))
    with pytest.raises(ValueError, match=why):
        export(reader, str(tmp_path / "x.csv"), since)
    reader.close()
    driver.store.close()
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("command", ["check", "export", "backup"])
def test_commands_refuse_what_is_no_store(command: str, tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("hello " * 1000)
    for store, why in (
        (f"sqlite:{tmp_path / 'missing'}", "there is no store"),
        (f"sqlite:{text}", "cannot read"),
        ("memory", "memory"),
    ):
        out = ["--out", str(tmp_path / "out.sqlite" if command == "backup" else tmp_path / "o.csv")]
        done = run_command(command, "--store", store, *([] if command == "check" else out))
        assert done.returncode == 2
        assert why in done.stderr
        assert "Traceback" not in done.stderr
    shutil.rmtree(tmp_path, ignore_errors=True)
