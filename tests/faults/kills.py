"""kill -9 at random moments under load: also while checkpointing, and while a model is swapped."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from pathlib import Path
from typing import Any

from latentbandits.serving.engine.model_rows import read_artefact
from tests.faults.load import Audit, Book, arms, audit, client, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_SESSIONS = 150
_CLIENTS = ((1, 4), (50, 4))  # (requests in a body, how many such clients)


def run(folder: Path, full: bool) -> list[Result]:
    kills, rewards = (200, 100_000) if full else (4, 800)
    names = saved_models(folder)
    models = {read_artefact(folder / "models" / name).id: arms(i) for i, name in enumerate(names)}
    store = f"sqlite:{folder / 'kills.sqlite'}"
    service = RunningService(
        folder / "models" / names[0], "--store", store, "--swap", "migrated",
        "--checkpoint-pages", "4", folder=folder,
    )  # fmt: skip
    with service:
        book = asyncio.run(_rampage(service, names, kills, rewards))
        result: Audit = audit(book, service, store, models)
    counted = f"{kills} kills, {len(book.rewarded)} acknowledged rewards: {result}"
    if book.failures:
        counted += f"; unexpected answers, for instance {book.failures[0]}"
    enough = len(book.rewarded) >= rewards
    return [Result("kill -9 under load, checkpoints and model swaps", counted,
                   result.clean and enough and not book.failures)]  # fmt: skip


async def _rampage(service: RunningService, models: list[str], kills: int, rewards: int) -> Book:
    book = Book()
    stop = asyncio.Event()
    rng = random.Random(1)
    clients = [
        asyncio.create_task(client(book, service.port, stop, random.Random(i), _SESSIONS, batch))
        for i, batch in enumerate(b for b, n in _CLIENTS for _ in range(n))
    ]
    loop = asyncio.get_running_loop()
    for number in range(kills):
        goal = rewards * (number + 1) // kills
        for _ in range(3000):  # at most 30 s
            if len(book.rewarded) >= goal:
                break
            await asyncio.sleep(0.01)
        if number % 2:
            await _swapping(service, models[number // 2 % len(models)], rng)
        else:
            await asyncio.sleep(rng.uniform(0, 0.03))
        service.kill()
        await loop.run_in_executor(None, service.start)
        if (number + 1) % 20 == 0:
            told = f"{number + 1} of {kills} kills, {len(book.rewarded)} rewards acknowledged"
            sys.stderr.write(told + "\n")
    stop.set()
    await asyncio.gather(*clients)
    await _settle(book, service)
    return book


async def _swapping(service: RunningService, model: str, rng: random.Random) -> None:
    """Be in the middle of a swap, more or less."""

    async def swap() -> None:
        connection = Connection(service.port)
        with contextlib.suppress(ConnectionError):
            await connection.post("/v1/models/activate", {"path": model, "mode": "migrated"})
        connection.close()

    task: asyncio.Task[Any] = asyncio.create_task(swap())
    await asyncio.sleep(rng.uniform(0.0, 0.1))
    task.add_done_callback(lambda _: None)


async def _settle(book: Book, service: RunningService) -> None:
    """Rewards whose answer was lost are told once more: that must not count them twice."""
    connection = Connection(service.port)
    for decision_id, value in book.waiting:
        reply = await connection.post("/v1/reward", {"decision_id": decision_id, "value": value})
        if book.take(reply.status, reply.body):
            book.rewarded[decision_id] = value
    connection.close()
