"""More connections than it takes on: refused with Retry-After, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

from latentbandits.serving.engine.model_rows import read_artefact
from tests.faults.load import Book, arms, audit, client, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_WAITING = 32


def run(folder: Path, full: bool) -> list[Result]:
    connections, seconds = (512, 20.0) if full else (128, 2.0)
    (name,) = saved_models(folder, 1)
    models = {read_artefact(folder / "models" / name).id: arms(0)}
    store = f"sqlite:{folder / 'overload.sqlite'}"
    with RunningService(
        folder / "models" / name, "--store", store, "--max-waiting", str(_WAITING), folder=folder
    ) as service:
        book, retry, longest = asyncio.run(_hammer(service, connections, seconds))
        result = audit(book, service, store, models)
    counted = (
        f"{len(book.rewarded)} rewards acknowledged, {book.refused} requests refused with 503 and "
        f"Retry-After: {retry}; at most {longest} waited; {result}"
    )
    holds = result.clean and bool(book.rewarded) and book.refused > 0 and retry == "1"
    # The watcher itself may wait beside those that are limited.
    holds = holds and 0 < longest <= _WAITING + 1 and not book.failures
    return [Result(f"overload, {connections} connections", counted, holds)]


async def _hammer(
    service: RunningService, connections: int, seconds: float
) -> tuple[Book, str, int]:
    book = Book()
    stop = asyncio.Event()
    clients = [
        asyncio.create_task(client(book, service.port, stop, random.Random(i), 300, 1))
        for i in range(connections)
    ]
    prober = Connection(service.port)
    retry = ""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        reply = await prober.post("/v1/decide", {"session": "probe"})
        if reply.status == 503:
            retry = reply.headers.get("retry-after", "none")
        await asyncio.sleep(0.01)
    text = (await prober.get("/metrics")).body.decode()
    result = re.search(r"^latentbandits_waiting_most (\S+)", text, re.MULTILINE)
    longest = int(float(result[1])) if result else -1
    stop.set()
    await asyncio.gather(*clients)
    for decision_id, value in book.waiting:
        reply = await prober.post("/v1/reward", {"decision_id": decision_id, "value": value})
        if reply.status == 200:
            book.rewarded[decision_id] = value
    prober.close()
    return book, retry, longest
