"""Sessions of many rounds: quick after a restart, and rebuilt without delaying the others."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from latentbandits import GaussianArms, LinearGaussian, save
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import read_artefact
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_ACTIONS, _FEATURES = 20, 20
_IDLE = 1_000  # requests of another session whose p99 is the idle one
_TIMES = 20  # how much longer the first decide may take than one of a session in the cache


def _arms(seed: int) -> GaussianArms:
    return GaussianArms(np.random.default_rng(seed).random((5, _ACTIONS)), 0.5, 0.2)


def _linear(seed: int) -> LinearGaussian:
    weights = np.random.default_rng(seed).normal(size=(5, _FEATURES))
    return LinearGaussian(weights, 0.5, np.stack([0.1 * np.eye(_FEATURES)] * 5))


def run(folder: Path, full: bool) -> list[Result]:
    rounds = 100_000 if full else 600
    results = []
    for kind, make in (("arms", _arms), ("20 features", _linear)):
        models = folder / kind.replace(" ", "-")
        save(make(0), models / "first")
        save(make(1), models / "second")
        path = folder / f"{models.name}.sqlite"
        features = _context() if make is _linear else None
        _fill(path, models / "first", rounds, features)
        results += _measure(folder, models, path, kind, rounds, features)
    return results


def _context() -> list[list[float]]:
    table: list[list[float]] = np.random.default_rng(3).normal(size=(_ACTIONS, _FEATURES)).tolist()
    return table


def _fill(path: Path, model: Path, rounds: int, features: Any) -> None:
    """Play a session in this process, which is quicker than over HTTP."""
    store = SqliteStore(path, "NORMAL")
    engine = Engine(store, EngineSettings(propensity="none"))
    rng = np.random.default_rng(4)
    with engine.transaction():
        engine.start_with(read_artefact(model))
    for begin in range(0, rounds, 1_000):
        with engine.transaction():
            for _ in range(begin, min(begin + 1_000, rounds)):
                decided = engine.decide(DecisionRequest("long", features=features))
                engine.reward(RewardReport(decided.decision_id, float(rng.normal(0.5, 0.5))))
    store.close()


def _measure(
    folder: Path, models: Path, path: Path, kind: str, rounds: int, features: Any
) -> list[Result]:
    service = RunningService(
        models / "first", "--store", f"sqlite:{path}", "--propensity", "none",
        "--request-timeout", "600", folder=folder,
    )  # fmt: skip
    ratios = []
    with service:
        for _ in range(3):
            service.terminate()
            service.start()
            ratios.append(asyncio.run(_first(service, features)))
        first, cached = sorted(ratios, key=lambda pair: pair[0] / pair[1])[1]  # the median
        ratio = first / cached
        idle, busy, seconds, failures = asyncio.run(_rebuild(service, features))
    return [
        Result(
            f"first decide after a restart, {rounds} rounds ({kind})",
            f"{first * 1000:.1f} ms, {ratio:.1f} times a decide of a session in the cache "
            f"({cached * 1000:.1f} ms)",
            ratio <= _TIMES,
        ),
        Result(
            f"a session of {rounds} rounds is rebuilt after an activation ({kind})",
            f"{seconds:.1f} s; p99 of other sessions meanwhile {busy * 1000:.1f} ms, idle "
            f"{idle * 1000:.1f} ms ({busy / idle:.1f} times); {failures} requests failed",
            failures == 0,
        ),
    ]


async def _first(service: RunningService, features: Any) -> tuple[float, float]:
    """Return the seconds of the first decide, and the median of those that follow it."""
    connection = Connection(service.port, timeout=120.0)
    body = {"session": "warm", "features": features} if features else {"session": "warm"}
    for _ in range(20):  # the process itself is warm: what is measured is the session
        await connection.post("/v1/decide", body)
    times = []
    for _ in range(40):
        begun = time.perf_counter()
        reply = await connection.post("/v1/decide", {**body, "session": "long"})
        times.append(time.perf_counter() - begun)
        assert reply.status == 201, reply.body
    connection.close()
    return times[0], statistics.median(times[1:])


async def _rebuild(service: RunningService, features: Any) -> tuple[float, float, float, int]:
    """Activate another model; p99 of other sessions before, and while the long one is rebuilt."""
    admin = Connection(service.port, timeout=600.0)
    body = {"features": features} if features else {}
    failures = 0

    async def others(stop: asyncio.Event, least: int) -> list[float]:
        nonlocal failures
        connection = Connection(service.port, timeout=120.0)
        times: list[float] = []
        while not stop.is_set() or len(times) < least:
            begun = time.perf_counter()
            reply = await connection.post("/v1/decide", {"session": "other", **body})
            times.append(time.perf_counter() - begun)
            failures += reply.status != 201
            await asyncio.sleep(0.002)
        connection.close()
        return times

    stopped = asyncio.Event()
    stopped.set()
    idle = await others(stopped, _IDLE)
    await admin.post("/v1/models/activate", {"path": "second", "mode": "migrated"})
    stop = asyncio.Event()
    load = asyncio.create_task(others(stop, 300))
    begun = time.perf_counter()
    reply = await admin.post("/v1/decide", {"session": "long", **body})
    seconds = time.perf_counter() - begun
    failures += reply.status != 201
    stop.set()
    busy = await load
    admin.close()
    return float(np.quantile(idle, 0.99)), float(np.quantile(busy, 0.99)), seconds, failures
