"""SIGTERM under load, and while a long session is rebuilt."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

import numpy as np

from latentbandits import Markov, save
from latentbandits.serving.engine.model_rows import read_artefact
from tests.faults.load import Book, arms, audit, client, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_REPLAYED = 120  # rewards, each of which takes a tenth of a second or more to replay


def run(folder: Path, full: bool) -> list[Result]:
    return [_under_load(folder, full), _while_rebuilding(folder)]


def _under_load(folder: Path, full: bool) -> Result:
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
    return Result("SIGTERM under load", counted, holds)


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


def _while_rebuilding(folder: Path) -> Result:
    """A request that waits for a replay has done nothing: it is told so when the service ends.

    Where the replay ends in time, the request is answered as usual; then its decision is there.
    """
    (name,) = saved_models(folder, 1)
    moving = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    save(Markov(arms(0), moving, n_paths=40_000), folder / "models" / "slow")
    store = f"sqlite:{folder / 'rebuilding.sqlite'}"
    service = RunningService(
        folder / "models" / name, "--store", store, "--drain", "0.2", "--propensity", "none",
        "--request-timeout", "60", folder=folder,
    )  # fmt: skip
    with service:
        answers, seconds, code = asyncio.run(_interrupted(service))
        service.start()
        with service.client() as client:
            entries = client.get("/v1/log", params={"limit": 1000}).json()["decisions"]
            rounds = sum(entry["session"] == "long" for entry in entries)
    (decide, batch), half, other = answers[:2], answers[2], answers[3]
    acknowledged = sum(status in (200, 201) for status in (decide, batch))
    return Result(
        "SIGTERM while a long session is rebuilt",
        f"its decide answered {decide}, in a batch {batch}, a request of which half had come "
        f"{half}, a decide of another session {other}; exit code {code} within {seconds:.1f} s; "
        f"{rounds - _REPLAYED - acknowledged} decisions were made of those not acknowledged",
        decide in (201, 503)
        and batch in (200, 503)
        and (half, other, code) == (503, 201, 0)
        and seconds < 10.2
        and rounds == _REPLAYED + acknowledged,
    )


async def _interrupted(service: RunningService) -> tuple[list[int], float, int]:
    """The statuses of requests that the end of the service interrupts, seconds, exit code."""
    first = Connection(service.port)
    for _ in range(_REPLAYED):
        decided = (await first.post("/v1/decide", {"session": "long"})).json()
        await first.post("/v1/reward", {"decision_id": decided["decision_id"], "value": 0.5})
    await first.post("/v1/models/activate", {"path": "slow", "mode": "migrated"})
    connections = [Connection(service.port, timeout=60.0) for _ in range(2)]
    waiting = [
        asyncio.create_task(connections[0].post("/v1/decide", {"session": "long"})),
        asyncio.create_task(connections[1].post("/v1/decide", [{"session": "long"}])),
    ]
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(
        b"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b'content-length: 100\r\n\r\n{"session":'
    )
    await asyncio.sleep(0.3)
    process = service.process
    assert process is not None
    begun = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    other = await first.post("/v1/decide", {"session": "other"})
    statuses = [(await one).status for one in waiting]
    half = int((await reader.readline()).split(b" ")[1])
    writer.close()
    for connection in (first, *connections):
        connection.close()
    code = await asyncio.to_thread(process.wait, 30)
    return [*statuses, half, other.status], time.perf_counter() - begun, code
