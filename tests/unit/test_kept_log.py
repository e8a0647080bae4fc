"""The log that relearning keeps: read from a cursor, complete, crash-safe, nothing forgotten."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from latentbandits.loop.kept_log import KeptLog, StoreSource
from latentbandits.serving import export as exporting
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.values import RewardReport
from latentbandits.serving.export import export
from latentbandits.serving.stores import open_log, open_store
from tests.unit.engine_driver import ARMS, Clock, Driver


@pytest.fixture
def driver(tmp_path: Path) -> Any:
    made = Driver.__new__(Driver)
    made.clock = Clock()
    made.store = open_store(f"sqlite:{tmp_path / 'store.sqlite'}")
    settings = EngineSettings(
        policy="mmTS", reward_default=0.0, reward_timeout=10.0, session_ttl=100.0
    )
    made.engine = Engine(made.store, settings, made.clock)
    made.activate(pack(ARMS, "model"))
    yield made
    made.store.close()


@pytest.fixture
def source(tmp_path: Path, driver: Driver) -> StoreSource:
    return StoreSource(f"sqlite:{tmp_path / 'store.sqlite'}")


def whole(tmp_path: Path) -> pl.DataFrame:
    """Export the log as it is now, from its beginning."""
    reader = open_log(f"sqlite:{tmp_path / 'store.sqlite'}")
    export(reader, str(tmp_path / "all.parquet"))
    reader.close()
    return pl.read_parquet(tmp_path / "all.parquet")


def same(kept: pl.DataFrame, tmp_path: Path) -> None:
    now = whole(tmp_path).sort("decision_id")
    assert kept.drop("cursor").equals(now.drop("cursor"))


def asked_name(driver: Driver, rng: np.random.Generator) -> str:
    """Return the name of some session of the log."""
    names = sorted({event.session_name for event in driver.store.log_reader().read(0, 10_000)})
    return str(rng.choice(names))


def test_it_is_the_log_whatever_came_between_two_reads(
    driver: Driver, source: StoreSource, tmp_path: Path
) -> None:
    kept = KeptLog(tmp_path / "work")
    rng = np.random.default_rng(1)
    assert kept.update(source).decisions.is_empty()
    waiting: list[Any] = []
    for step in range(12):
        for _ in range(5):
            request = driver.ask(f"s{rng.integers(8)}")
            if rng.random() < 0.6:
                driver.tell(request, float(rng.normal()))
            else:
                waiting.append(request)
        if step % 3 == 1:  # late rewards, corrections, defaults, forgotten and ended sessions
            driver.tell(waiting.pop(), 0.5)
        if step % 4 == 2:
            done = driver.ask("s0")
            driver.tell(done, 1.0)
            kept.update(source)
            driver.correct(RewardReport(done.decision_id, -1.0))
        if step == 6:
            driver.clock.now += 11_000
            driver.sweep()
        if step == 8:
            driver.clock.now += 200_000  # sessions end, and begin anew with the same names
            driver.sweep()
        if step in (5, 10):
            driver.delete(asked_name(driver, rng))
            waiting = []
        logged = kept.update(source)
        same(logged.decisions, tmp_path)
    assert {"default", "correction"} <= set(logged.decisions["reward_kind"].drop_nulls())
    again = kept.update(source)
    assert (again.read, again.forgotten) == (0, 0)
    assert len(list((tmp_path / "work" / "log").iterdir())) == 1


def test_rewards_that_come_between_two_pages_of_the_store_are_kept(
    driver: Driver, source: StoreSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 rewards, one after each page of 3 events, for decisions that were read before."""
    kept = KeptLog(tmp_path / "work")
    waiting = [driver.ask(f"s{i}") for i in range(60)][:20]
    monkeypatch.setattr(exporting, "_PAGE", 3)
    frames, pages_left = exporting._Pages.frames, [5.0]

    def interrupted(self: Any, *arguments: Any) -> Any:
        for page in frames(self, *arguments):
            yield page
            if waiting:
                driver.tell(waiting.pop(0), 0.25)
            pages_left[0] -= 1
            if pages_left[0] < 0:
                raise KeyboardInterrupt

    monkeypatch.setattr(exporting._Pages, "frames", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.update(source)
    pages_left[0] = np.inf
    for _ in range(3):
        logged = kept.update(source)
    assert not waiting
    same(logged.decisions, tmp_path)
    assert (logged.decisions["reward"] == 0.25).sum() == 20


def test_a_forgotten_session_is_dropped_without_other_news(
    driver: Driver, source: StoreSource, tmp_path: Path
) -> None:
    kept = KeptLog(tmp_path / "work")
    for name in ("ann", "bob"):
        driver.tell(driver.ask(name), 1.0)
    kept.update(source)
    driver.delete("ann")
    logged = kept.update(source)
    assert (logged.forgotten, logged.decisions["session"].to_list()) == (1, ["bob"])
    for path in (tmp_path / "work").rglob("*"):
        assert not path.is_file() or b"ann" not in path.read_bytes()


def test_a_crash_while_writing_loses_nothing(
    driver: Driver, source: StoreSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, folder = KeptLog(tmp_path / "work"), tmp_path / "work" / "log"
    for i in range(3):
        driver.ask(f"s{i}")
    kept.update(source)
    (first,) = folder.iterdir()
    driver.ask("later")

    def dying(real: Any, prefix: str) -> Any:
        """Return `real`, which dies at a file of the folder whose name begins with `prefix`."""

        def die(path: Any, *rest: Any, **options: Any) -> Any:
            if Path(os.fspath(path)).parent == folder and Path(path).name.startswith(prefix):
                raise KeyboardInterrupt
            return real(path, *rest, **options)

        return die

    # Before the new file has its name (its scratch file stays, as after a kill), and just after.
    for dies_at in ({"replace": ".log", "unlink": ".log"}, {"unlink": "log"}):
        with monkeypatch.context() as patch:
            for name, prefix in dies_at.items():
                patch.setattr(os, name, dying(getattr(os, name), prefix))
            with pytest.raises(KeyboardInterrupt):
                kept.update(source)
        assert first.exists()
        assert len(list(folder.iterdir())) == 2
    same(kept.update(source).decisions, tmp_path)
    assert len(list(folder.iterdir())) == 1


def test_a_log_of_another_store_is_refused_and_kept(
    driver: Driver, source: StoreSource, tmp_path: Path
) -> None:
    kept = KeptLog(tmp_path / "work")
    driver.ask("ann")
    kept.update(source)
    other = open_store(f"sqlite:{tmp_path / 'other.sqlite'}")
    Engine(other, EngineSettings(policy="mmTS"))
    other.close()
    with pytest.raises(ValueError, match=r"holds the log of another store, .* --work folder"):
        kept.update(StoreSource(f"sqlite:{tmp_path / 'other.sqlite'}"))
    same(kept.update(source).decisions, tmp_path)


def test_a_store_that_cannot_be_read_is_an_error_of_one_run(
    driver: Driver, source: StoreSource, tmp_path: Path
) -> None:
    """`relearn --every` goes on after a ValueError, with the next run."""
    known = driver.ask("ann").decision_id
    assert source.forgotten([known, "no id"]) == {"no id"}
    driver.store._connection.execute("ALTER TABLE decisions RENAME TO gone")
    with pytest.raises(ValueError, match=r"cannot be read: .*decisions"):
        source.forgotten([known])
    with pytest.raises(ValueError, match=r"cannot be read: .*decisions"):
        source.read("")
    driver.store._connection.execute("ALTER TABLE gone RENAME TO decisions")


def test_a_log_that_was_kept_without_users_goes_on(
    driver: Driver, source: StoreSource, tmp_path: Path
) -> None:
    kept = KeptLog(tmp_path / "work")
    driver.ask("ann")
    kept.update(source)
    (path,) = (tmp_path / "work" / "log").iterdir()
    pl.read_parquet(path).drop("user").write_parquet(path)
    driver.ask("bob")
    assert kept.update(source).decisions["user"].to_list() == ["ann", "bob"]
