"""A disk that is full and a store that is read-only: refused, then recovered without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from latentbandits.serving.engine.model_rows import read_artefact
from tests.faults.load import Book, arms, audit, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService


class Disk(NamedTuple):
    """A folder, and how to break and mend what is below it."""

    kind: str
    folder: Path
    fill: Callable[[int], None]  # of the service's process id
    drain: Callable[[int], None]
    protect: Callable[[], None]
    release: Callable[[], None]


def run(folder: Path, full: bool) -> list[Result]:
    rounds = 5 if full else 1
    (name,) = saved_models(folder, 1)
    models = {read_artefact(folder / "models" / name).id: arms(0)}
    with _disk(folder) as disk:
        store = f"sqlite:{disk.folder / 's.sqlite'}"
        with (
            _environment(TMPDIR=str(disk.folder)),
            RunningService(folder / "models" / name, "--store", store, folder=folder) as service,
        ):
            pid = service.pid
            book = Book()
            counts = [asyncio.run(_break(service, book, disk)) for _ in range(rounds)]
            same = service.pid == pid and service.process is not None
            result = audit(book, service, store, models)
    full_refused, protected_refused, accepted = (sum(c[i] for c in counts) for i in range(3))
    counted = (
        f"{disk.kind}, {rounds} times: {full_refused} requests answered 503 while full, "
        f"{protected_refused} while read-only, {accepted} acknowledged then; works again without "
        f"a restart; {result}"
    )
    holds = result.clean and accepted == 0 and same and not book.failures
    holds = holds and full_refused == protected_refused == rounds * 20
    return [Result("disk full (TMPDIR on it), then a read-only store", counted, holds)]


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def _break(service: RunningService, book: Book, disk: Disk) -> tuple[int, int, int]:
    connection = Connection(service.port)
    await _work(connection, book, 20)
    disk.fill(service.pid)
    full = await _refused(connection)
    disk.drain(service.pid)
    disk.protect()
    protected = await _refused(connection)
    not_ready = (await connection.get("/readyz")).status
    disk.release()
    ready = (await connection.get("/readyz")).status
    if (not_ready, ready) != (503, 200):
        book.failures.append(f"readyz was {not_ready} while read-only and {ready} afterwards")
    await _work(connection, book, 20)
    connection.close()
    return full[0], protected[0], full[1] + protected[1]


async def _work(connection: Connection, book: Book, requests: int) -> None:
    for i in range(requests):
        reply = await connection.post("/v1/decide", {"session": f"s{i % 7}"})
        if not book.take(reply.status, reply.body):
            continue
        decision_id = reply.json()["decision_id"]
        book.decided[decision_id] = ""
        reply = await connection.post("/v1/reward", {"decision_id": decision_id, "value": 0.25})
        if book.take(reply.status, reply.body):
            book.rewarded[decision_id] = 0.25
    if book.refused:
        book.failures.append(f"{book.refused} requests refused by a store that works")


async def _refused(connection: Connection) -> tuple[int, int]:
    """503s and successes of requests that fill whatever space is left, then of twenty more."""
    big = [{"session": "big", "actions": ["0", "1", "2"]}] * 100
    for _ in range(200):
        if (await connection.post("/v1/decide", big)).status == 503:
            break
    statuses = [(await connection.post("/v1/decide", big)).status for _ in range(20)]
    return statuses.count(503), sum(status < 300 for status in statuses)


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[Disk]:
    """A small file system of our own where we may mount one, else limits and permissions."""
    mount = folder / "disk"
    mount.mkdir()
    mounted = os.geteuid() == 0 and _run("mount", "-t", "tmpfs", "-o", "size=6m", "none", mount)
    if not mounted:
        yield _limited(mount)
        return
    filler = mount / "filler"

    def fill(pid: int) -> None:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)

    try:
        yield Disk(
            "tmpfs of 6 MB",
            mount,
            fill,
            lambda pid: filler.unlink(),
            lambda: _must("mount", "-o", "remount,ro", mount),
            lambda: _must("mount", "-o", "remount,rw", mount),
        )
    finally:
        _run("umount", "-l", mount)


def _limited(folder: Path) -> Disk:
    """Files may not grow, by a limit on the process; then the file and its folder are read-only."""

    def limit(pid: int, size: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def permit(file_mode: int, folder_mode: int) -> None:
        for file in folder.iterdir():
            file.chmod(file_mode)
        folder.chmod(folder_mode)

    return Disk(
        "file size limit and permissions",
        folder,
        lambda pid: limit(pid, 4096),
        lambda pid: limit(pid, resource.RLIM_INFINITY),
        lambda: permit(0o444, 0o555),
        lambda: (folder.chmod(0o755), permit(0o644, 0o755))[0],
    )


def _run(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except OSError:
        return False


def _must(*command: str | Path) -> None:
    subprocess.run(command, capture_output=True, timeout=30, check=True)
