"""SIGTERM under load."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

from latentbandits.serving.engine.library import read_artefact
from tests.faults.load import Book, arms, audit, client, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService


def run(folder: Path, full: bool) -> list[Result]:
    times = 10 if full else 1
    (name,) = saved_models(folder, 1)
    models = {read_artefact(folder / "models" / name).id: arms(0)}
    store = f"sqlite:{folder / 'shutdown.sqlite'}"
    book = Book()
    slowest, codes, after = 0.0, set(), 0
    service = RunningService(folder / "models" / name, "--store", store, folder=folder)
    with service:
        for _ in range(times):
            seconds, code, served = asyncio.run(_terminate(service, book))
            slowest, after = max(slowest, seconds), after + served
            codes.add(code)
            service.start()
        result = audit(book, service, store, models)
    ends = ", ".join(map(str, sorted(codes)))
    counted = (
        f"{times} times: exit code {ends}, within {slowest:.1f} s; {after} decisions served after "
        f"readiness was off; {result}"
    )
    holds = result.clean and codes == {0} and slowest < 10 and after > 0 and not book.failures
    return [Result("SIGTERM under load", counted, holds)]


async def _terminate(service: RunningService, book: Book) -> tuple[float, int, int]:
    """Seconds until it ended, its exit code, and the decisions served once it was not ready."""
    stop = asyncio.Event()
    clients = [
        asyncio.create_task(client(book, service.port, stop, random.Random(i), 50, 1))
        for i in range(16)
    ]
    await asyncio.sleep(0.5)
    process = service.process
    assert process is not None
    begun = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    probe = Connection(service.port)
    before = None
    while process.poll() is None and time.perf_counter() - begun < 20:
        try:
            ready = (await probe.get("/readyz")).status
        except ConnectionError:
            ready = 0
        if ready == 503 and before is None:
            before = len(book.decided)
        await asyncio.sleep(0.02)
    seconds = time.perf_counter() - begun
    stop.set()
    await asyncio.gather(*clients)
    probe.close()
    return seconds, process.wait(), 0 if before is None else len(book.decided) - before
