"""Catalogues that change again and again: memory and the store must not grow with each change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from latentbandits import LinearGaussian, save
from latentbandits.models.artefacts import Catalogue
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_FEATURES = 10
_SESSIONS = 20  # that begin after each change, and stay in the cache
_MOST_MEMORY = 1.3  # times the memory of a service without changes
_MOST_STORED = 0.05  # of the bytes of a whole model, for each change


def run(folder: Path, full: bool) -> list[Result]:
    items, changes = (20_000, 200) if full else (20_000, 15)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, _FEATURES))
    model = LinearGaussian(weights, 0.5, np.stack([0.1 * np.eye(_FEATURES)] * 3))
    ids = [f"item-{i:06d}" for i in range(items)]
    titles = [f"The title of item {i}" for i in range(items)]
    save(model, folder / "model", Catalogue(ids, titles, rng.normal(size=(items, _FEATURES))))
    whole = sum(file.stat().st_size for file in (folder / "model").iterdir())
    memory, stored = {}, {}
    for changing in (False, True):
        path = folder / f"{changing}.sqlite"
        service = RunningService(
            folder / "model", "--store", f"sqlite:{path}", "--propensity", "none",
            "--cached-megabytes", "32", folder=folder,
        )  # fmt: skip
        with service:
            asyncio.run(_play(service, changes, changing=changing))
            memory[changing] = _megabytes(service.pid)
            service.terminate()
        stored[changing] = path.stat().st_size
    ratio = memory[True] / memory[False]
    each = (stored[True] - stored[False]) / changes
    return [
        Result(
            f"memory after {changes} changes of a catalogue of {items:,} items",
            f"{memory[True]:.0f} MB, {ratio:.2f} times that without changes "
            f"({memory[False]:.0f} MB)",
            ratio <= _MOST_MEMORY,
        ),
        Result(
            f"the store after {changes} changes of a catalogue of {items:,} items",
            f"{each / 1e3:.0f} kB for each change; the whole model has {whole / 1e3:.0f} kB",
            each <= _MOST_STORED * whole,
        ),
    ]


async def _play(service: RunningService, changes: int, *, changing: bool) -> None:
    """Change the catalogue, and decide and reward in new and older sessions after each change."""
    connection = Connection(service.port, timeout=120.0)
    rng = np.random.default_rng(1)
    for change in range(changes):
        if changing:
            vector = rng.normal(size=_FEATURES).tolist()
            await _post(connection, "/v1/actions", {"id": f"new-{change}", "vector": vector})
        names = [f"{change}-{i}" for i in range(_SESSIONS)]
        names += [f"{max(0, change - 3)}-{i}" for i in range(3)]
        for name in names:
            decided = await _post(connection, "/v1/decide", {"session": name})
            body = {"decision_id": decided["decision_id"], "value": 0.5}
            await _post(connection, "/v1/reward", body)
    connection.close()


async def _post(connection: Connection, path: str, body: Any) -> Any:
    reply = await connection.post(path, body)
    assert reply.status in (200, 201), (path, reply.status, reply.body)
    return reply.json()


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
