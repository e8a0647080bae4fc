"""Minutes of ordinary load: memory, open files and p99 stay flat."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults.load import saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_MEGABYTE = 2**20
_CLIENTS, _SESSIONS = 8, 2_000
_GROWTH = 16 * _MEGABYTE


class Window(NamedTuple):
    """A part of the run: memory and open files at its end, and the p99 of its requests."""

    memory: int
    descriptors: int
    p99: float
    requests: int


def run(folder: Path, full: bool) -> list[Result]:
    seconds, windows = (600.0, 10) if full else (8.0, 4)
    (name,) = saved_models(folder, 1)
    store = f"sqlite:{folder / 'soak.sqlite'}"
    arguments = (folder / "models" / name, "--store", store, "--cached-sessions", "500")
    with RunningService(*arguments, folder=folder) as service:
        result = asyncio.run(_soak(service, seconds / windows, windows))
    start, end = result[windows // 4], result[-1]  # the first part fills the caches
    grown = end.memory - start.memory
    return [
        Result(
            f"soak of {seconds:g} s, {_CLIENTS} clients, {_SESSIONS} sessions",
            f"{sum(one.requests for one in result)} requests; memory "
            f"{start.memory / _MEGABYTE:.1f} to {end.memory / _MEGABYTE:.1f} MB, open files "
            f"{start.descriptors} to {end.descriptors}, p99 {start.p99 * 1e3:.0f} to "
            f"{end.p99 * 1e3:.0f} ms",
            grown < _GROWTH and abs(end.descriptors - start.descriptors) <= 3,
        )
    ]


async def _soak(service: RunningService, seconds: float, windows: int) -> list[Window]:
    times: list[float] = []
    stop = asyncio.Event()
    clients = [asyncio.create_task(_client(service.port, i, stop, times)) for i in range(_CLIENTS)]
    results = []
    for _ in range(windows):
        await asyncio.sleep(seconds)
        taken, times[:] = sorted(times), []
        p99 = taken[int(0.99 * (len(taken) - 1))] if taken else 0.0
        results.append(Window(service.memory(), service.descriptors(), p99, len(taken)))
    stop.set()
    await asyncio.gather(*clients)
    return results


async def _client(port: int, number: int, stop: asyncio.Event, times: list[float]) -> None:
    connection = Connection(port)
    count = 0
    while not stop.is_set():
        session = f"s{(number * 7919 + count * 31) % _SESSIONS}"
        begun = time.perf_counter()
        reply = await connection.post("/v1/decide", {"session": session})
        middle = time.perf_counter()
        assert reply.status == 201, reply.body
        told = {"decision_id": reply.json()["decision_id"], "value": 0.5}
        reply = await connection.post("/v1/reward", told)
        assert reply.status == 200, reply.body
        times += [middle - begun, time.perf_counter() - middle]
        count += 1
        if count % 50 == 0:  # clients come and go
            connection.close()
            connection = Connection(port)
    connection.close()
