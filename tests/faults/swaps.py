"""Hot swaps under load, some with models that must be refused."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

from latentbandits import save
from latentbandits.serving.engine.model_rows import read_artefact
from tests.faults.load import Book, arms, audit, client, linear, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService


def run(folder: Path, full: bool) -> list[Result]:
    swaps = 100 if full else 12
    good = saved_models(folder, 3)
    bad = _bad_models(folder / "models", good[0])
    models = {read_artefact(folder / "models" / n).id: arms(i) for i, n in enumerate(good)}
    store = f"sqlite:{folder / 'swaps.sqlite'}"
    with RunningService(folder / "models" / good[0], "--store", store, folder=folder) as service:
        book, done, refused = asyncio.run(_swap(service, good, bad, swaps))
        result = audit(book, service, store, models)
    counted = (
        f"{done} swaps, {refused} bad models refused, {len(book.decided)} decisions, "
        f"{len(book.failures) + book.refused} failed; {result}"
    )
    holds = result.clean and not book.failures and book.refused == 0
    return [Result(f"{swaps} hot swaps under load, some of bad models", counted,
                   holds and done + refused == swaps and refused > 0)]  # fmt: skip


def _bad_models(models: Path, good: str) -> list[str]:
    for name in ("flipped", "cut", "headless"):
        shutil.copytree(models / good, models / name)
    flipped = models / "flipped" / "arrays.safetensors"
    data = bytearray(flipped.read_bytes())
    data[-3] ^= 4
    flipped.write_bytes(bytes(data))
    cut = models / "cut" / "arrays.safetensors"
    cut.write_bytes(cut.read_bytes()[:-40])
    (models / "headless" / "manifest.json").unlink()
    save(linear(0), models / "linear")
    return ["flipped", "cut", "headless", "linear", "missing"]


async def _swap(
    service: RunningService, good: list[str], bad: list[str], swaps: int
) -> tuple[Book, int, int]:
    book = Book()
    stop = asyncio.Event()
    clients = [
        asyncio.create_task(client(book, service.port, stop, random.Random(i), 60, 1 + 9 * (i % 2)))
        for i in range(8)
    ]
    connection = Connection(service.port)
    rng = random.Random(2)
    done = refused = 0
    for number in range(swaps):
        name = bad[number // 3 % len(bad)] if number % 3 == 2 else good[number % len(good)]
        mode = ("pinned", "migrated")[number % 2]
        reply = await connection.post("/v1/models/activate", {"path": name, "mode": mode})
        done += reply.status == 200 and name in good
        refused += reply.status == 422 and name in bad
        await asyncio.sleep(rng.uniform(0.0, 0.1))
    stop.set()
    await asyncio.gather(*clients)
    connection.close()
    return book, done, refused
