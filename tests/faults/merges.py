"""Many sessions of one user, merged one after the other."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np

from latentbandits import Decision, mmTS
from tests.faults.load import arms, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService


def run(folder: Path, full: bool) -> list[Result]:
    length = 5_000 if full else 150
    (name,) = saved_models(folder, 1)
    store = f"sqlite:{folder / 'merges.sqlite'}"
    with RunningService(
        folder / "models" / name, "--store", store, "--synchronous", "NORMAL", folder=folder
    ) as service:
        return [asyncio.run(_chain(service, length, forward)) for forward in (True, False)]


async def _chain(service: RunningService, length: int, forward: bool) -> Result:
    """Merge each session into the next one, or all into the first; then restart and delete."""
    connection = Connection(service.port, timeout=60.0)
    prefix = "f" if forward else "b"
    policy = mmTS(arms(0))
    belief = policy.init(1)
    statuses: dict[int, int] = {}
    slowest = 0.0
    rng = np.random.default_rng(1)
    for i in range(length):
        reply = await connection.post("/v1/decide", {"session": f"{prefix}{i}"})
        decided = reply.json()
        value = float(rng.normal(0.5, 0.5))
        await connection.post("/v1/reward", {"decision_id": decided["decision_id"], "value": value})
        belief = policy.update(belief, None, Decision.logged([decided["index"]]), [value])
        if i:
            into, other = (i, i - 1) if forward else (0, i)
            begun = time.perf_counter()
            reply = await connection.post(
                "/v1/sessions/merge", {"into": f"{prefix}{into}", "other": f"{prefix}{other}"}
            )
            slowest = max(slowest, time.perf_counter() - begun)
            statuses[reply.status] = statuses.get(reply.status, 0) + 1
    connection.close()
    await asyncio.get_running_loop().run_in_executor(None, service.kill)
    await asyncio.get_running_loop().run_in_executor(None, service.start)
    connection = Connection(service.port, timeout=60.0)
    view = (await connection.get(f"/v1/sessions/{prefix}{length // 2}")).json()
    expected = policy.state_probabilities(belief)[0]
    worst = float(np.abs(np.array(view["state_probabilities"]) - expected).max())
    gone = await connection.request("DELETE", f"/v1/sessions/{prefix}0", b"")
    deleted = gone.json().get("sessions")
    connection.close()
    how = "each into the next" if forward else "all into the first"
    return Result(
        f"merge chain of {length}, {how}",
        f"answered {statuses}, the slowest took {slowest:.2f} s; {view['rewards']} rewards after a "
        f"kill, state probabilities differ by {worst:.1e} from a plain replay; deleting one "
        f"deleted {deleted}",
        set(statuses) == {200} and view["rewards"] == length and worst < 1e-9 and deleted == length,
    )
