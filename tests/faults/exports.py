"""Readers of the log beside writers that are killed: exports, relearning, pages over HTTP; and
readers that go on after a backup was restored.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg

from latentbandits.client import Client, ServiceError
from latentbandits.loop.kept_log import KeptLog, StoreSource
from latentbandits.serving import export as exports
from latentbandits.serving.stores import open_log
from tests.faults.load import Book, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.postgresql import find_binaries, postgresql
from tests.processes.service import RunningService, run_command

MakeUrl = Callable[[str], str]
_SESSIONS = 40
_BATCH = 10  # decisions or rewards of one request
_WAITING = 30  # decisions of a client that have no reward yet
_PAUSE = 0.2  # seconds between two reads, which take time from the clients in this process
_PAGE = 40  # so that an export has many pages


def run(folder: Path, full: bool) -> list[Result]:
    return _run(folder, full, 1, lambda name: f"sqlite:{folder / name}.sqlite")


def run_shared(folder: Path, full: bool) -> list[Result]:
    binaries = find_binaries()
    if binaries is None:
        return [Result("readers of the log (PostgreSQL)", "NO POSTGRESQL TO TEST WITH", False)]
    with postgresql(binaries) as server:
        return _run(folder, full, 2, lambda name: _database(server, name))


def _run(folder: Path, full: bool, n_processes: int, make_url: MakeUrl) -> list[Result]:
    runs, seconds, restores = (10, 30.0, 10) if full else (1, 2.0, 1)
    database = "SQLite" if n_processes == 1 else "PostgreSQL"
    kind = database if n_processes == 1 else f"{database}, {n_processes} processes"
    model = folder / "models" / saved_models(folder, 1)[0]
    total: Counter[str] = Counter()
    for number in range(runs):
        url = make_url(f"run{number}")
        services = [
            RunningService(model, "--store", url, folder=folder) for _ in range(n_processes)
        ]
        total += _Readers(folder / f"run{number}").beside(services, url, seconds)
        sys.stderr.write(f"{kind}, {number + 1} of {runs}: {dict(total)}\n")
    results = [_told(kind, runs, seconds, total)]
    if full or n_processes == 1:  # tests/unit/test_log_cursors.py has it for both stores
        refused = [_restored(model, make_url, number, folder) for number in range(restores)]
        counted = (
            f"{restores} times: {sum(refused)} refused the cursor that was made after the backup, "
            "and read on from the one before it without a gap"
        )
        results.append(
            Result(f"a backup restored, readers go on ({database})", counted, all(refused))
        )
    return results


def _database(server: str, name: str) -> str:
    """Return the URL of a database, made where it is not there."""
    with psycopg.connect(server, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
        if known.fetchone() is None:
            connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{server.rpartition('/')[0]}/{name}"


def _told(kind: str, runs: int, seconds: float, total: Counter[str]) -> Result:
    counts = (
        f"{runs} runs of {seconds:.0f} s, {total['kills']} kills, {total['rewards']} acknowledged "
        f"rewards, {total['exports']} exports, {total['relearn']} reads of relearn, "
        f"{total['http']} of pages over HTTP"
    )
    wrong = {
        f"{what} by {who}": total[f"{what} {who}"]
        for what in ("missing", "twice")
        for who in ("export", "relearn", "HTTP")
    }
    named = ", ".join(f"{n} {what}" for what, n in wrong.items())
    enough = min(total["rewards"], total["exports"], total["relearn"], total["http"]) >= runs
    return Result(
        f"readers of the log beside writers and kills ({kind})",
        f"{counts}: rewards {named}",
        enough and not any(wrong.values()),
    )


class _Readers:
    """An exporter, a relearner and a reader over HTTP; each goes on from its own cursor."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._counts: Counter[str] = Counter()
        self._exported: dict[str, float | None] = {}
        self._cursor = ""
        self._kept: pl.DataFrame | None = None
        self._seen: Counter[str] = Counter()  # cursors of the reward events over HTTP
        self._told: dict[str, float] = {}
        self._next = ""
        self._failures: list[BaseException] = []

    def beside(self, services: list[RunningService], store: str, seconds: float) -> Counter[str]:
        """Write for some seconds, read meanwhile and once afterwards; return the counts."""
        with contextlib.ExitStack() as stack:
            for service in services:
                stack.enter_context(service)
            stop = threading.Event()
            kept = KeptLog(self._folder / "work")
            readers = [
                threading.Thread(target=self._again, args=(stop, read))
                for read in (
                    lambda: self._export(store),
                    lambda: self._relearn(kept, store),
                    lambda: self._pages(services[0]),
                )
            ]
            for reader in readers:
                reader.start()
            try:
                book = asyncio.run(_write(services, seconds, self._counts))
            finally:
                stop.set()
                for reader in readers:
                    reader.join()
            self._export(store)
            self._relearn(kept, store)
            self._pages(services[0])
        if self._failures:
            raise self._failures[0]
        if book.failures:
            raise AssertionError(book.failures[0])
        return self._judged(book)

    def _again(self, stop: threading.Event, read: Callable[[], None]) -> None:
        while not stop.wait(_PAUSE):
            try:
                read()
            except (ServiceError, ConnectionError):  # the service was killed
                time.sleep(0.05)
            except BaseException as error:
                self._failures.append(error)
                return

    def _export(self, store: str) -> None:
        path = self._folder / "part.parquet"
        reader = open_log(store)
        try:
            before, exports._PAGE = exports._PAGE, _PAGE  # type: ignore[attr-defined]
            done = exports.export(reader, str(path), self._cursor)
        finally:
            exports._PAGE = before  # type: ignore[attr-defined]
            reader.close()
        self._cursor = done.next
        rows = pl.read_parquet(path)
        self._counts["twice export"] += len(rows) - rows["decision_id"].n_unique()
        self._exported.update(zip(rows["decision_id"], rows["reward"], strict=True))
        self._counts["exports"] += 1

    def _relearn(self, kept: KeptLog, store: str) -> None:
        self._kept = kept.update(StoreSource(store)).decisions
        self._counts["relearn"] += 1

    def _pages(self, service: RunningService) -> None:
        with Client(service.url, timeout=5, retries=0) as client:
            while True:
                page = client.log(self._next, limit=_PAGE)
                for reward in page.rewards:
                    self._seen[reward.cursor] += 1
                    self._told[reward.decision_id] = reward.value
                if page.next == self._next:
                    break
                self._next = page.next
        self._counts["http"] += 1

    def _judged(self, book: Book) -> Counter[str]:
        assert self._kept is not None
        kept = dict(zip(self._kept["decision_id"], self._kept["reward"], strict=True))
        self._counts["twice relearn"] += len(self._kept) - len(kept)
        self._counts["twice HTTP"] += sum(n - 1 for n in self._seen.values())
        self._counts["rewards"] += len(book.rewarded)
        for who, read in (("export", self._exported), ("relearn", kept), ("HTTP", self._told)):
            self._counts[f"missing {who}"] += sum(
                read.get(one) != value for one, value in book.rewarded.items()
            )
        return self._counts


async def _write(services: list[RunningService], seconds: float, counts: Counter[str]) -> Book:
    """Decide and reward, late and in any order, while the last service is killed."""
    book = Book()
    stop = asyncio.Event()
    clients = [
        asyncio.create_task(_late_client(book, services[i % len(services)].port, stop, i))
        for i in range(4)
    ]
    loop = asyncio.get_running_loop()
    rng = random.Random(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(min(rng.uniform(0.5, 3.0), max(0.1, end - time.monotonic())))
        services[-1].kill()
        await loop.run_in_executor(None, services[-1].start)
        counts["kills"] += 1
    stop.set()
    await asyncio.gather(*clients)
    connection = Connection(services[0].port, timeout=20.0)
    for decision_id, value in book.waiting:  # their answers were lost: tell them once more
        reply = await connection.post("/v1/reward", {"decision_id": decision_id, "value": value})
        if book.take(reply.status, reply.body):
            book.rewarded[decision_id] = value
    connection.close()
    return book


async def _late_client(book: Book, port: int, stop: asyncio.Event, seed: int) -> None:
    connection = Connection(port, timeout=5.0)
    rng = random.Random(seed)
    waiting: list[tuple[str, float]] = []
    while not stop.is_set():
        try:
            sessions = [{"session": f"s{rng.randrange(_SESSIONS)}"} for _ in range(_BATCH)]
            reply = await connection.post("/v1/decide", sessions)
            if book.take(reply.status, reply.body):
                waiting += [(one["decision_id"], round(rng.random(), 6)) for one in reply.json()]
            if len(waiting) > _WAITING:
                rng.shuffle(waiting)
                told, waiting = waiting[:_BATCH], waiting[_BATCH:]
                await _reward(book, connection, told)
        except ConnectionError:
            await asyncio.sleep(0.01)
    connection.close()


async def _reward(book: Book, connection: Connection, told: list[tuple[str, float]]) -> None:
    book.waiting += told
    reply = await connection.post(
        "/v1/reward", [{"decision_id": one, "value": value} for one, value in told]
    )
    if not book.take(reply.status, reply.body):
        return
    for pair, answer in zip(told, reply.json(), strict=True):
        if answer.get("status") in ("applied", "duplicate"):
            book.waiting.remove(pair)
            book.rewarded[pair[0]] = pair[1]
        else:
            book.failures.append(str(answer))


def _restored(model: Path, make_url: MakeUrl, number: int, folder: Path) -> bool:
    """Restore a backup that is older than a reader's cursor; return whether readers notice."""
    url, copy = make_url(f"original{number}"), make_url(f"copy{number}")
    out = folder / f"restored-{number}.parquet"

    def export(store: str, since: str = "") -> tuple[set[Any], str]:
        done = run_command("export", "--store", store, "--out", out, "--since", since)
        if done.returncode:
            return set(), done.stderr
        rows = pl.read_parquet(out)
        return set(rows["decision_id"]), done.stdout.split("--since ")[1].strip()

    def write(store: str) -> Iterator[str]:
        service = RunningService(model, "--store", store, folder=folder)
        with service, Client(service.url, timeout=10) as client:
            for step in ("before", "between", "after"):
                for i in range(10):
                    decided = client.decide(f"{step}{i}")
                    client.reward(decided.decision_id, 0.5)
                yield step

    original = write(url)
    next(original)
    first, before = export(url)
    next(original)
    saved = run_command("backup", "--store", url, "--out", copy)
    next(original)
    _, after = export(url)
    original.close()
    again = write(copy)
    for _ in range(2):
        next(again)
    later, _ = export(copy, before)
    whole, _ = export(copy)
    _, refusal = export(copy, after)
    again.close()
    no_gap = first | later == whole and not first & later and len(whole) == 40
    return saved.returncode == 0 and no_gap and "Leave `since` out" in refusal
