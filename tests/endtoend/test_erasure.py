"""A forgotten user's id is in none of the files: store, write-ahead log, audit, process log."""

from __future__ import annotations

import random
import re
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from latentbandits import save
from latentbandits.client import Client
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.stores import sqlite
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.faults.load import arms
from tests.processes.service import RunningService
from tests.unit.engine_driver import ARMS, Driver

N = 3_000


def names(seed: int) -> list[str]:
    """Return ids of different lengths, so that pages of an index are divided unevenly."""
    rng = random.Random(seed)
    return [f"user-{rng.randrange(10**9):09d}-{'x' * rng.randrange(30)}" for _ in range(N)]


def found(folder: Path, ids: list[str]) -> dict[str, int]:
    """Return how often an id is in each file, if it is."""
    counts, begins = {}, {one[:14].encode() for one in ids}
    for file in folder.iterdir():
        if file.is_file():
            named = re.findall(rb"user-\d{9}", file.read_bytes())
            counts[file.name] = sum(one in begins for one in named)
    return {file: count for file, count in counts.items() if count}


def set_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the store believe that this much time has passed."""
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=lambda: seconds))


def fill(driver: Driver, ids: list[str], seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2):
        rng.shuffle(ids)
        for begin in range(0, len(ids), 100):
            with driver.engine.transaction():
                for name in ids[begin : begin + 100]:
                    decided = driver.engine.decide(DecisionRequest(name))
                    driver.engine.reward(RewardReport(decided.decision_id, rng.random()))


@pytest.mark.parametrize(
    "end",
    [*(pytest.param(end, marks=pytest.mark.slow) for end in ("time", "close")), "kill"],
)
def test_names_are_erased(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = names(1)  # in an index, or in a page of rows that grew, some of these ids stay otherwise
    gone, kept = ids[: N // 2], ids[N // 2 :]
    store = SqliteStore(tmp_path / "s.sqlite", "NORMAL")
    driver = Driver(ARMS, store)
    fill(driver, list(ids), 8)
    with driver.engine.transaction():
        for name in gone:
            driver.engine.delete(name)
    assert found(tmp_path, gone)
    if end == "time":
        set_time(monkeypatch, 1e9)
        driver.sweep()  # every 30 s
    elif end == "kill":
        copied = tmp_path / "copied"
        copied.mkdir()
        for end_of_name in ("", "-wal"):
            name = f"s.sqlite{end_of_name}"
            (copied / name).write_bytes((tmp_path / name).read_bytes())
        store.close()
        again = SqliteStore(copied / "s.sqlite")
        again.begin()
        again.commit()
        assert not found(copied, gone)
        again.close()
        return
    else:
        store.close()
    assert not found(tmp_path, gone)
    assert found(tmp_path, kept)


def test_a_reader_of_the_log_delays_erasure_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "s.sqlite", "NORMAL")
    driver = Driver(ARMS, store)
    driver.ask("user-000000001")
    reader = store.log_reader()
    reader._connection.execute("BEGIN").execute("SELECT count(*) FROM sessions").fetchall()
    driver.delete("user-000000001")
    set_time(monkeypatch, 1e9)
    driver.sweep()
    assert found(tmp_path, ["user-000000001"])
    reader._connection.execute("COMMIT")
    set_time(monkeypatch, 2e9)
    driver.sweep()
    assert not found(tmp_path, ["user-000000001"])
    reader.close()
    store.close()


def test_a_service_keeps_no_id_of_a_forgotten_user(tmp_path: Path) -> None:
    save(arms(0), tmp_path / "models" / "arms")
    options = ("--store", f"sqlite:{tmp_path / 's.sqlite'}", "--audit", tmp_path / "audit.jsonl")
    service = RunningService(tmp_path / "models" / "arms", *options, folder=tmp_path)
    ids = names(9)[:200]
    with service, Client(service.url) as client:
        for decided in client.decide_many([{"session": one} for one in ids]):
            client.reward(decided.decision_id, 0.5)
        client.merge(ids[0], ids[1])
        for one in ids[1:]:  # the first with the second
            client.forget(one, request_id=f"forget {one}")
        with httpx.Client(base_url=service.url) as http:
            assert http.get(f"/v1/sessions/{ids[0]}").status_code == 404
        service.terminate()
    assert not found(tmp_path, ids)
