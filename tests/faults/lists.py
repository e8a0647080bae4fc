"""Visitors with lists of three, with kill -9 in between: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars

from latentbandits import BernoulliArms, ListDecision, mmTS, save, update_list
from latentbandits.serving.export import export
from latentbandits.serving.http.views import describe
from latentbandits.serving.stores import open_log
from tests.faults.load import difference
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

LENGTH = 3
LISTS = 3  # of each visitor
_CLIENTS = 8
RATES = np.random.default_rng(4).uniform(0.05, 0.6, (3, 6))
CLICKS = BernoulliArms(20 * RATES, 20 * (1 - RATES), state_prior=[0.5, 0.3, 0.2])


@dataclass
class Visitor:
    """What the service acknowledged to a visitor: lists in order, and what was clicked."""

    name: str
    shown: list[list[str]] = field(default_factory=list)
    rewards: list[list[float]] = field(default_factory=list)  # NaN: not observed


def run(folder: Path, full: bool) -> list[Result]:
    n_visitors, kills = (1_000, 20) if full else (60, 3)
    save(CLICKS, folder / "model")
    store = f"sqlite:{folder / 'lists.sqlite'}"
    service = RunningService(
        folder / "model", "--store", store, "--policy", "mmTS", "--click-model", "cascade",
        "--explore", "0.1", "--checkpoint-pages", "4", folder=folder,
    )  # fmt: skip
    visitors = [Visitor(f"visitor {i}") for i in range(n_visitors)]
    with service:
        asyncio.run(_rampage(service, visitors, kills))
        worst, wrong = _beliefs(service, visitors)
        missing, twice = _exported(store, folder, visitors)
    lists = sum(len(visitor.rewards) for visitor in visitors)
    counted = (
        f"{kills} kills, {n_visitors} visitors, {lists} lists of {LENGTH}: {missing} positions "
        f"lost, {twice} twice, {wrong} sessions with another number of rewards; beliefs equal "
        f"update_list to {worst:.1e}"
    )
    holds = not missing and not twice and not wrong and worst <= 1e-9
    return [Result("lists, kill -9 in between", counted, holds and lists == LISTS * n_visitors)]


async def _rampage(service: RunningService, visitors: list[Visitor], kills: int) -> None:
    waiting = list(visitors)
    done: list[Visitor] = []
    rng = random.Random(2)

    async def client(seed: int) -> None:
        own = random.Random(seed)
        connection = Connection(service.port, timeout=5.0)
        while waiting:
            visitor = waiting.pop()
            for number in range(LISTS):
                await _visit(connection, visitor, number, own)
            done.append(visitor)
        connection.close()

    clients = [asyncio.create_task(client(i)) for i in range(_CLIENTS)]
    loop = asyncio.get_running_loop()
    for number in range(kills):
        while len(done) < len(visitors) * (number + 1) // (kills + 1):
            await asyncio.sleep(0.005)
        await asyncio.sleep(rng.uniform(0, 0.02))
        service.kill()
        await loop.run_in_executor(None, service.start)
    await asyncio.gather(*clients)


async def _visit(connection: Connection, visitor: Visitor, number: int, rng: random.Random) -> None:
    """Ask for a list and tell the click; every fourth visitor tells of the top position first."""
    request = {
        "session": visitor.name, "length": LENGTH, "request_id": f"{visitor.name}, {number}",
    }  # fmt: skip
    decided = await _post(connection, "/v1/decide", request)
    shown: list[str] = decided["actions"]
    attracted = [rng.random() < RATES[0][int(action)] for action in shown]
    place = attracted.index(True) if True in attracted else LENGTH
    rewards = [0.0] * place + [1.0] * (place < LENGTH) + [np.nan] * (LENGTH - place - 1)
    answer: dict[str, Any] = {"decision_id": decided["decision_id"]}
    if place > 0 and rng.random() < 0.25:
        await _post(connection, "/v1/reward", answer | {"values": {shown[0]: 0}})
    clicked = shown[place] if place < LENGTH else None
    await _post(connection, "/v1/reward", answer | {"clicked": clicked})
    visitor.shown.append(shown)
    visitor.rewards.append(rewards)


async def _post(connection: Connection, path: str, body: Any) -> Any:
    """Send a request until there is an answer: the same one, so that it is done once."""
    while True:
        try:
            reply = await connection.post(path, body)
        except ConnectionError:
            await asyncio.sleep(0.01)
            continue
        if reply.status in (200, 201):
            return reply.json()
        if reply.status not in (429, 503):
            raise AssertionError(f"{reply.status} {reply.body[:200]!r}")
        await asyncio.sleep(0.01)


def _beliefs(service: RunningService, visitors: list[Visitor]) -> tuple[float, int]:
    """Compare every session with what the library makes of the lists that were acknowledged."""
    policy = mmTS(CLICKS)
    worst, wrong = 0.0, 0
    with service.client() as http:
        for visitor in visitors:
            belief = policy.init(1)
            for shown, rewards in zip(visitor.shown, visitor.rewards, strict=True):
                decision = ListDecision.logged([[int(action) for action in shown]])
                belief = update_list(policy, belief, None, decision, [rewards], "cascade")
            view = http.get(f"/v1/sessions/{visitor.name}").json()
            wrong += (view["round"], view["rewards"]) != (LISTS, LISTS)
            worst = max(worst, difference(view["belief"], describe(belief)))
    return worst, wrong


def _exported(store: str, folder: Path, visitors: list[Visitor]) -> tuple[int, int]:
    """Return how many acknowledged positions the export lacks, and how many it has twice."""
    path = folder / "log.parquet"
    reader = open_log(store)
    export(reader, str(path))
    reader.close()
    rows = polars.read_parquet(path)
    columns = ("session", "round", "list_position", "action", "reward")
    known = set(rows.select(columns).iter_rows())
    missing = 0
    for visitor in visitors:
        for round_, (shown, rewards) in enumerate(
            zip(visitor.shown, visitor.rewards, strict=True), 1
        ):
            for position, (action, reward) in enumerate(zip(shown, rewards, strict=True), 1):
                value = None if np.isnan(reward) else reward
                missing += (visitor.name, round_, position, action, value) not in known
    return missing, len(rows) - len(known)
