"""Clocks that are set back and forth across kills: nothing depends on them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.faults.load import saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_JUMPS = (0, -3600, 3600, -7, -3600, 3600)


def run(folder: Path, full: bool) -> list[Result]:
    seconds, jumps = (20.0, _JUMPS) if full else (0.5, _JUMPS[:4])
    (name,) = saved_models(folder, 1)
    store = f"sqlite:{folder / 'clocks.sqlite'}"
    service = RunningService(
        folder / "models" / name, "--store", store, "--synchronous", "NORMAL", folder=folder
    )
    acknowledged: set[str] = set()
    seen: list[str] = []
    rewarded: dict[str, int] = {}
    failures: list[str] = []
    cursor = ""
    with service:
        for number, jump in enumerate(jumps):
            if number:
                service.kill()  # under the load of the round before: ids ran ahead of the clock
                service.clock = jump
                service.start()
            cursor = asyncio.run(
                _round(service, number, seconds, acknowledged, seen, rewarded, cursor, failures)
            )
    missed, twice = len(acknowledged - set(seen)), len(seen) - len(set(seen))
    late = sum(times != 1 for times in rewarded.values())
    counted = (
        f"{len(jumps) - 1} kills under batches of 100, then a clock of "
        f"{', '.join(f'{jump:+d} s' for jump in jumps[1:])}: {len(acknowledged)} decisions, "
        f"{missed} never seen by a reader that follows `next`, {twice} seen twice; "
        f"{len(rewarded)} rewards, {late} not seen once; {len(failures)} requests failed"
    )
    if failures:
        counted += f", for instance {failures[0]}"
    return [Result("clocks -1 h, -7 s, +1 h across restarts", counted,
                   not (missed or twice or late or failures))]  # fmt: skip


async def _round(
    service: RunningService,
    number: int,
    seconds: float,
    acknowledged: set[str],
    seen: list[str],
    rewarded: dict[str, int],
    cursor: str,
    failures: list[str],
) -> str:
    connection = Connection(service.port)

    async def post(path: str, body: Any) -> Any:
        reply = await connection.post(path, body)
        if reply.status not in (200, 201):
            failures.append(f"{path} {reply.status} {reply.body[:150]!r}")
            return []
        return reply.json()

    for i in range(30):  # new sessions, and one that ended and begins anew
        for session in (f"new {number} {i}", "again"):
            decided = await post("/v1/decide", {"session": session})
            if decided:
                acknowledged.add(decided["decision_id"])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for decided in await post("/v1/decide", [{"session": "busy"}] * 100):
            acknowledged.add(decided["decision_id"])
    for decided_id in sorted(acknowledged)[-5:] + sorted(acknowledged)[:5]:
        if decided_id not in rewarded and decided_id in acknowledged:
            await post("/v1/reward", {"decision_id": decided_id, "value": 0.5})
            rewarded[decided_id] = 0
    while True:
        reply = await connection.get(f"/v1/log?limit=1000&since={cursor}")
        page = reply.json()
        seen += [entry["decision_id"] for entry in page["decisions"]]
        for entry in page["rewards"]:
            rewarded[entry["decision_id"]] = rewarded.get(entry["decision_id"], 0) + 1
        if page["next"] == cursor:
            break
        cursor = page["next"]
    connection.close()
    return cursor
