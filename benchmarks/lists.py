"""A list of five beside a single action: whole durable requests over HTTP, in turns."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
from tests.processes.http import Connection
from tests.processes.service import RunningService

from benchmarks.report import Report, Table, Target
from benchmarks.service_versions import processor_seconds
from latentbandits import BernoulliArms, save

STATES, ACTIONS, LENGTH = 5, 100, 5
TURNS, REQUESTS, CONNECTIONS = 12, 400, 8
POLICIES = ("mTS", "mmTS", "mmGreedy")


def make_model() -> BernoulliArms:
    rates = np.random.default_rng(0).uniform(0.02, 0.5, (STATES, ACTIONS))
    return BernoulliArms(50 * rates, 50 * (1 - rates))


def cost(service: RunningService, body: dict[str, int]) -> float:
    """Return the server's processor time of one decide, in microseconds."""

    async def one(number: int) -> None:
        connection = Connection(service.port)
        data = json.dumps({"session": f"s{number}", **body}).encode()
        for _ in range(REQUESTS // CONNECTIONS):
            reply = await connection.post("/v1/decide", data)
            assert reply.status == 201, reply.body
        connection.close()

    async def everyone() -> None:
        await asyncio.gather(*map(one, range(CONNECTIONS)))

    begun = processor_seconds(service.pid)
    asyncio.run(everyone())
    return (processor_seconds(service.pid) - begun) / REQUESTS * 1e6


def main() -> Report:
    """Measure the policies one after the other; a list and an action take turns."""
    rows, targets = [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save(make_model(), folder / "model")
        for policy in POLICIES:
            store = f"sqlite:{folder / policy}.sqlite"
            words = ("--store", store, "--policy", policy, "--click-model", "cascade")
            with RunningService(folder / "model", *words, folder=folder) as service:
                cost(service, {})  # warm
                cost(service, {"length": LENGTH})
                pairs = [
                    (cost(service, {}), cost(service, {"length": LENGTH})) for _ in range(TURNS)
                ]
            single, listed = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(b / a for a, b in pairs)
            rows.append((policy, single, listed, ratio))
            targets.append(Target(f"list of {LENGTH} / single, {policy}, CPU", ratio, at_most=3.0))
    title = f"CPU of one durable decide over HTTP, {ACTIONS} actions, cascade, S={STATES}, clicks"
    columns = ("policy", "single, us", f"list of {LENGTH}, us", "ratio")
    return Report("lists", (Table(title, columns, tuple(rows)),), tuple(targets))
