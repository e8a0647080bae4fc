"""The log read in pages: the log at one moment, each event once, whatever is written meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from latentbandits.serving import export as exports
from latentbandits.serving.engine.values import Decided, RewardReport
from latentbandits.serving.export import Exported, export
from latentbandits.serving.stores import open_store
from latentbandits.serving.stores.protocol import LogReader
from tests.unit.engine_driver import ARMS, Driver

STORES = ("memory", "sqlite", "postgresql")


@pytest.fixture(params=STORES)
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    else:
        url = f"sqlite:{tmp_path / 'store.sqlite'}" if request.param == "sqlite" else "memory"
    made = Driver(ARMS, open_store(url))
    yield made
    made.store.close()


class Between:
    """A reader beside which something is written after each page."""

    def __init__(self, reader: LogReader, write: Callable[[], None]) -> None:
        self._reader = reader
        self._write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, *arguments: Any, **options: Any) -> Any:
        events = self._reader.read(*arguments, **options)
        self._write()
        return events


def exported(reader: Any, path: Path, since: str = "") -> tuple[pl.DataFrame, Exported]:
    done = export(reader, str(path), since)
    return pl.read_parquet(path), done


def latest(*tables: pl.DataFrame) -> pl.DataFrame:
    """Return the last row of each decision, as readers of several exports take it."""
    return pl.concat(tables).unique("decision_id", keep="last").sort("decision_id").drop("cursor")


def test_rewards_between_two_pages_are_in_the_next_export(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_PAGE", 4)
    asked = [driver.ask(f"s{i % 3}") for i in range(10)]
    driver.tell(asked[0], 0.5)
    waiting = asked[1:]

    def write() -> None:
        if waiting:
            driver.tell(waiting.pop(0), 1.0)
            driver.correct(RewardReport(asked[0].decision_id, float(len(waiting))))
            driver.tell(driver.ask("new"), 0.25)

    reader = driver.store.log_reader()
    before, _ = exported(reader, tmp_path / "before.parquet")
    first, done = exported(Between(reader, write), tmp_path / "first.parquet")
    assert latest(first).equals(latest(before)), "an export is the log when it began"
    second, done = exported(Between(reader, write), tmp_path / "second.parquet", done.next)
    third, done = exported(reader, tmp_path / "third.parquet", done.next)
    whole, _ = exported(reader, tmp_path / "whole.parquet")
    assert latest(first, second, third).equals(latest(whole))
    for table in (first, second, third):
        assert table["decision_id"].is_unique().all(), "a row of each decision"
    reader.close()


@pytest.mark.parametrize("driver", STORES[1:], indirect=True)
def test_exports_beside_a_writer_miss_no_reward(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer rewards, late and in any order, while one export follows the other."""
    monkeypatch.setattr(exports, "_PAGE", 20)
    stop = threading.Event()
    told: dict[str, float] = {}

    def write() -> None:
        rng = np.random.default_rng(3)
        waiting: list[Decided] = []
        while not stop.is_set():
            waiting.append(driver.ask(f"s{rng.integers(20)}"))
            if len(waiting) > 15:
                decided = waiting.pop(int(rng.integers(len(waiting))))
                value = round(float(rng.random()), 3)
                driver.tell(decided, value)
                told[decided.decision_id] = value

    writer = threading.Thread(target=write)
    reader = driver.store.log_reader()
    tables, since = [], ""
    writer.start()
    try:
        while len(told) < 400 and writer.is_alive():
            table, done = exported(reader, tmp_path / "part.parquet", since)
            tables.append(table)
            since = done.next
    finally:
        stop.set()
        writer.join()
    table, _ = exported(reader, tmp_path / "part.parquet", since)
    rows = latest(*tables, table)
    rewards = dict(zip(rows["decision_id"], rows["reward"], strict=True))
    assert len(told) >= 400
    assert {name: rewards[name] for name in told} == told
    reader.close()


def test_the_end_is_a_position_that_stays(driver: Driver) -> None:
    reader = driver.store.log_reader()
    driver.tell(driver.ask("ann"), 1.0)
    end = reader.end()
    assert reader.read(0, 100)[-1].position <= end
    driver.delete("ann")
    assert reader.end() >= end, "also where the last events were forgotten"
    assert reader.read(0, 100) == []
    reader.close()
