"""Two processes share sessions in PostgreSQL, and one of them is killed again and again."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from latentbandits.serving.engine.model_rows import read_artefact
from tests.faults.load import Book, arms, audit, client, saved_models
from tests.faults.table import Result
from tests.faults.visibility import watch
from tests.processes.postgresql import find_binaries, postgresql
from tests.processes.service import RunningService


def run(folder: Path, full: bool) -> list[Result]:
    binaries = find_binaries()
    if binaries is None:
        return [Result("two processes share PostgreSQL", "NO POSTGRESQL TO TEST WITH", False)]
    kills, pairs = (20, 1_600) if full else (2, 64)
    (name,) = saved_models(folder, 1)
    models = {read_artefact(folder / "models" / name).id: arms(0)}
    with postgresql(binaries) as url:
        one, other = (
            RunningService(folder / "models" / name, "--store", url, folder=folder)
            for _ in range(2)
        )
        with one, other:
            unseen = asyncio.run(watch([one.port, other.port], pairs))
            book = asyncio.run(_share(one, other, kills))
            result = audit(book, one, url, models)
    return [
        Result("reward told to one process, decide asked of another (PostgreSQL)",
               f"{pairs} pairs, {unseen} that did not see it", unseen == 0),
        Result("two processes share PostgreSQL, one is killed under load",
               f"{kills} kills, {len(book.rewarded)} acknowledged rewards, {book.refused} refused: "
               f"{result}", result.clean and not book.failures and bool(book.rewarded)),
    ]  # fmt: skip


async def _share(one: RunningService, other: RunningService, kills: int) -> Book:
    book = Book()
    stop = asyncio.Event()
    clients = [
        asyncio.create_task(client(book, service.port, stop, random.Random(i), 12, 1 + 4 * (i % 2)))
        for i, service in enumerate([one, other] * 4)
    ]
    loop = asyncio.get_running_loop()
    rng = random.Random(6)
    for _ in range(kills):
        await asyncio.sleep(rng.uniform(0.3, 1.0))
        other.kill()
        await loop.run_in_executor(None, other.start)
    await asyncio.sleep(0.5)
    stop.set()
    await asyncio.gather(*clients)
    return book
