"""A reward that was acknowledged, then a decision in the same session: it must have been seen."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np

from latentbandits import Decision, mmTS
from tests.faults.load import arms, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_CLIENTS = 16


def run(folder: Path, full: bool) -> list[Result]:
    pairs = 10_000 if full else 320
    names = saved_models(folder, 1)
    service = RunningService(
        folder / "models" / names[0], "--store", f"sqlite:{folder / 'see.sqlite'}", folder=folder
    )
    with service:
        unseen = asyncio.run(watch([service.port], pairs))
    return [
        Result("reward acknowledged, then decide in the same session",
               f"{pairs} pairs, {unseen} that did not see it", unseen == 0)
    ]  # fmt: skip


async def watch(ports: list[int], pairs: int) -> int:
    """Pairs that missed a reward; with several ports, the decision is asked of another process."""
    counts = await asyncio.gather(
        *(_one(ports, f"see {i}", pairs // _CLIENTS, i) for i in range(_CLIENTS))
    )
    return sum(counts)


async def _one(ports: list[int], session: str, pairs: int, seed: int) -> int:
    policy = mmTS(arms(0))
    belief = policy.init(1)
    rng = random.Random(seed)
    connections = [Connection(port) for port in ports]
    unseen = 0
    for number in range(pairs):
        if number % 40 == 0:  # a new user now and then, so that beliefs stay undecided
            session, belief = f"{session[:40]} {number}", policy.init(1)
            decided = await _decide(connections[0], session)
        value = rng.gauss(0.5, 0.5)
        told = {"decision_id": decided["decision_id"], "value": value}
        reply = await connections[number % len(ports)].post("/v1/reward", told)
        assert reply.json()["status"] == "applied", reply.body
        belief = policy.update(belief, None, Decision.logged([decided["index"]]), [value])
        decided = await _decide(connections[(number + 1) % len(ports)], session)
        expected = policy.state_probabilities(belief)[0]
        unseen += not np.allclose(decided["state_probabilities"], expected, rtol=0, atol=1e-9)
    for connection in connections:
        connection.close()
    return unseen


async def _decide(connection: Connection, session: str) -> dict[str, object]:
    reply = await connection.post("/v1/decide", {"session": session})
    assert reply.status == 201, reply.body
    answer: dict[str, object] = reply.json()
    return answer
