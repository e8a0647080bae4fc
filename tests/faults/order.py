"""Rewards several times each, shuffled, late, and across restarts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np

from latentbandits import save
from tests.faults.load import N_ACTIONS, N_FEATURES, arms, difference, linear
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService


def run(folder: Path, full: bool) -> list[Result]:
    sessions, rounds = (100, 60) if full else (5, 20)
    results = []
    for kind, model in (("arms", arms(0)), ("linear", linear(0))):
        save(model, folder / "models" / kind)
        service = RunningService(
            folder / "models" / kind, "--store", f"sqlite:{folder / kind}.sqlite", folder=folder
        )
        with service:
            told, worst = asyncio.run(_compare(service, kind == "linear", sessions, rounds))
        results.append(
            Result(
                f"rewards 1 to 5 times each, shuffled, late, across restarts ({kind})",
                f"{sessions} sessions of {rounds} rounds, {told} rewards told: beliefs differ by "
                f"{worst:.1e} from those of rewards in order",
                worst <= 1e-9,
            )
        )
    return results


async def _compare(
    service: RunningService, featured: bool, sessions: int, rounds: int
) -> tuple[int, float]:
    """Twins see the same actions and rewards: one in order, one in disorder."""
    rng = np.random.default_rng(3)
    connection = Connection(service.port)
    later: list[tuple[str, float]] = []
    for i in range(sessions):
        for _ in range(rounds):
            body: dict[str, Any] = {"actions": [str(rng.integers(N_ACTIONS))]}
            if featured:
                body["features"] = [rng.normal(size=N_FEATURES).tolist()]
            value = float(rng.normal())
            for twin in ("orderly", "messy"):
                reply = await connection.post("/v1/decide", {"session": f"{twin}-{i}", **body})
                decision_id = reply.json()["decision_id"]
                if twin == "orderly":
                    await _tell(connection, decision_id, value)
                else:
                    later.append((decision_id, value))
    shuffled = random.Random(4)
    mail = [letter for letter in later for _ in range(shuffled.randint(1, 5))]
    shuffled.shuffle(mail)
    loop = asyncio.get_running_loop()
    for number, (decision_id, value) in enumerate(mail):
        if number in (len(mail) // 3, 2 * len(mail) // 3):
            await loop.run_in_executor(None, service.kill if number % 2 else service.terminate)
            await loop.run_in_executor(None, service.start)
        await _tell(connection, decision_id, value)
    worst = 0.0
    for i in range(sessions):
        views = [
            (await connection.get(f"/v1/sessions/{twin}-{i}")).json()
            for twin in ("orderly", "messy")
        ]
        assert views[0]["rewards"] == views[1]["rewards"] == rounds
        worst = max(worst, difference(views[1]["belief"], views[0]["belief"]))
    connection.close()
    return len(mail), worst


async def _tell(connection: Connection, decision_id: str, value: float) -> None:
    for _ in range(3):
        try:
            reply = await connection.post(
                "/v1/reward", {"decision_id": decision_id, "value": value}
            )
        except ConnectionError:  # the connection of before the restart
            continue
        assert reply.status == 200, reply.body
        return
    raise AssertionError("no answer after three attempts")
