"""One flipped bit in the files of a store: without effect, refused, or reported; never silent."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from latentbandits.serving.check import check
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.errors import Refused, StoreError
from latentbandits.serving.stores import open_tables
from latentbandits.serving.stores.protocol import STORE_ID
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.faults.load import arms
from tests.faults.table import Result
from tests.unit.engine_driver import session_view

_NOW = 1_700_000_000_000
_SETTINGS = EngineSettings(snapshot_rounds=5, holdout_share=0.3)
_SESSIONS = 40
_FILES = ("s.sqlite", "s.sqlite-wal", "s.sqlite.mark")


def run(folder: Path, full: bool) -> list[Result]:
    flips = 300 if full else 60
    clean, killed = folder / "clean", folder / "killed"
    for place in (clean, killed):
        place.mkdir()
        _fill(place, killed=place is killed)
    results = []
    for name, place, files in (
        ("the file", clean, ("s.sqlite",)),
        ("the file, -wal and .mark of a killed process", killed, _FILES),
    ):
        before = _answers(_copied(place, folder / "work"))
        assert before is not None
        counts: Counter[str] = Counter()
        silent = []
        rng = random.Random(7)
        for _ in range(flips):
            work = _copied(place, folder / "work")
            where = _flip(work, files, rng)
            outcome = _outcome(work, before)
            counts[outcome] += 1
            if outcome == "SILENT":
                silent.append(where)
        shown = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
        more = f"; for instance {silent[0]}" if silent else ""
        results.append(
            Result(f"one flipped bit in {name}", f"{flips} times: {shown}{more}", not silent)
        )
    results.append(_cut_wal(killed, folder / "work"))
    results.append(_damaged_totals(clean, folder / "work"))
    return results


def _fill(folder: Path, *, killed: bool) -> None:
    """Make a small store of everything; `killed` leaves the write-ahead log behind."""
    store = SqliteStore(folder / "made.sqlite")
    engine = Engine(store, _SETTINGS, lambda: _NOW)
    rng = np.random.default_rng(1)
    with engine.transaction():
        engine.start_with(pack(arms(0), "arms"))
    for i in range(_SESSIONS):
        with engine.transaction():
            for _ in range(int(rng.integers(1, 12))):
                decided = engine.decide(DecisionRequest(f"user {i}"))
                if rng.random() < 0.8:
                    engine.reward(RewardReport(decided.decision_id, float(rng.normal())))
    with engine.transaction():
        engine.merge("user 1", "user 2")
        engine.correct(RewardReport(_first_rewarded(engine), 0.125))
    if killed:
        for end in ("", "-wal", ".mark"):
            shutil.copy(f"{folder / 'made.sqlite'}{end}", f"{folder / 's.sqlite'}{end}")
    store.close()
    if not killed:
        shutil.copy(folder / "made.sqlite", folder / "s.sqlite")


def _first_rewarded(engine: Engine) -> str:
    reader = engine.store.log_reader()
    event = next(e for e in reader.read(0, 1000) if e.reward is not None)
    reader.close()
    return f"{event.decision.order:016x}{event.decision.token:016x}"


def _copied(place: Path, work: Path) -> Path:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name in _FILES:
        with suppress(FileNotFoundError):
            shutil.copy(place / name, work / name)
    return work


def _flip(work: Path, files: tuple[str, ...], rng: random.Random) -> str:
    """Flip a random bit of these files, each as likely as it is large."""
    sizes = {name: (work / name).stat().st_size for name in files if (work / name).exists()}
    place = rng.randrange(sum(sizes.values()))
    for name, size in sizes.items():
        if place < size:
            data = bytearray((work / name).read_bytes())
            data[place] ^= 1 << rng.randrange(8)
            (work / name).write_bytes(data)
            return f"byte {place} of {name}"
        place -= size
    raise AssertionError


@contextmanager
def _opened(work: Path) -> Iterator[tuple[SqliteStore, Engine]]:
    store = SqliteStore(work / "s.sqlite")
    try:
        yield store, Engine(store, _SETTINGS, lambda: _NOW)
    finally:
        store.close()


def _answers(work: Path) -> list[Any] | None:
    """All that the service could be asked, and is: None where any of it was refused."""
    collected: list[Any] = []
    try:
        with _opened(work) as (store, engine):
            if store.warnings:
                return None
            for i in range(_SESSIONS):
                with engine.transaction():
                    view = session_view(engine, f"user {i}")
                collected.append(msgspec.to_builtins(view))
            reader = store.log_reader()
            collected += [msgspec.to_builtins(event) for event in reader.read(0, 10_000)]
            collected.append([reader.note(STORE_ID), engine.sessions._salt])
            reader.close()
            with engine.transaction():
                collected.append(msgspec.to_builtins(engine.statistics))
                collected.append([msgspec.to_builtins(row) for row in store.audit(0, 100)])
                collected.append(engine.decide(DecisionRequest("user 3")).round)
                collected.append(engine.decide(DecisionRequest("someone new")).round)
    except (Refused, StoreError):
        return None
    return collected


def _outcome(work: Path, before: list[Any]) -> str:
    answers = _answers(work)
    if answers is None:
        return "refused or reported at the start"
    if answers == before:
        return "without effect"
    try:
        with open_tables(f"sqlite:{work / 's.sqlite'}") as tables:
            if check(tables).problems:
                return "reported by check"
    except (Refused, StoreError):
        return "refused or reported at the start"
    return "SILENT"


def _cut_wal(place: Path, work: Path) -> Result:
    """Cut the write-ahead log at every hundredth of its length."""
    length = (place / "s.sqlite-wal").stat().st_size
    missed = 0
    for part in range(0, 100, 10):
        copy = _copied(place, work)
        with (copy / "s.sqlite-wal").open("r+b") as file:
            file.truncate(length * part // 100)
        try:
            with _opened(copy) as (store, _):
                missed += not any("has lost its last" in warning for warning in store.warnings)
        except StoreError:
            pass
    return Result(
        "a write-ahead log that was cut", f"10 lengths, {missed} not reported", missed == 0
    )


def _damaged_totals(place: Path, work: Path) -> Result:
    """Damage the note of totals: the service starts, and computes them anew."""
    data = bytearray((_copied(place, work) / "s.sqlite").read_bytes())
    at = data.rindex(b"\x86\xa4arms")  # the note is a map of six, in msgpack
    data[at + 20] ^= 4
    (work / "s.sqlite").write_bytes(data)
    with _opened(work) as (store, engine):
        with engine.transaction():
            counts = dict(engine.statistics.counts)
        mended = any("mended" in warning for warning in store.warnings)
    with _opened(_copied(place, work)) as (_, engine), engine.transaction():
        kept = dict(engine.statistics.counts)
    same = all(counts.get(name) == kept.get(name) for name in ("started", "decisions", "applied"))
    return Result(
        "a damaged note of totals",
        f"started all the same: {mended}; the totals computed anew equal the old ones: {same}",
        mended and same,
    )
