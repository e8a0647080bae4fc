"""Clients that keep the books: what was acknowledged to them, and what they do not know."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from latentbandits import Decision, GaussianArms, LinearGaussian, mmTS, save
from latentbandits.serving.http.views import describe
from latentbandits.serving.records import LoggedEvent
from latentbandits.serving.stores import open_log
from tests.processes.http import Connection
from tests.processes.service import RunningService

N_ACTIONS = 4
N_FEATURES = 3


def arms(seed: int) -> GaussianArms:
    rng = np.random.default_rng(seed)
    return GaussianArms(rng.random((3, N_ACTIONS)), 0.5, 0.2, [0.2, 0.3, 0.5])


def linear(seed: int) -> LinearGaussian:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(3, N_FEATURES, N_FEATURES))
    return LinearGaussian(rng.normal(size=(3, N_FEATURES)), 0.5, 0.2 * roots @ roots.swapaxes(1, 2))


def saved_models(folder: Path, n: int = 2) -> list[str]:
    """Models of one shape, by their folder below `folder`/models."""
    names = [f"arms-{i}" for i in range(n)]
    for i, name in enumerate(names):
        save(arms(i), folder / "models" / name)
    return names


@dataclass
class Book:
    """What clients were told."""

    decided: dict[str, str] = field(default_factory=dict)  # decision id: session
    rewarded: dict[str, float] = field(default_factory=dict)  # decision id: value
    waiting: list[tuple[str, float]] = field(default_factory=list)  # rewards without an answer
    refused: int = 0  # 503 or 429
    failures: list[str] = field(default_factory=list)  # anything else that is not a success

    def take(self, status: int, body: bytes) -> bool:
        """Whether an answer is a success; notes what else it is."""
        if status in (200, 201):
            return True
        if status in (429, 503):
            self.refused += 1
        else:
            self.failures.append(f"{status} {body[:200]!r}")
        return False


async def client(
    book: Book, port: int, stop: asyncio.Event, rng: random.Random, sessions: int, batch: int
) -> None:
    """Decide and reward until told to stop; after a lost answer, the same rewards again."""
    connection = Connection(port, timeout=5.0)
    while not stop.is_set():
        try:
            await _round(book, connection, rng, sessions, batch)
        except ConnectionError:
            await asyncio.sleep(0.01)
    connection.close()


async def _round(
    book: Book, connection: Connection, rng: random.Random, sessions: int, batch: int
) -> None:
    rewards = [book.waiting.pop() for _ in range(min(batch, len(book.waiting)))]
    if not rewards:
        requests = [{"session": f"s{rng.randrange(sessions)}"} for _ in range(batch)]
        reply = await connection.post("/v1/decide", requests if batch > 1 else requests[0])
        if not book.take(reply.status, reply.body):
            await asyncio.sleep(0.005)
            return
        answers = reply.json() if batch > 1 else [reply.json()]
        for request, answer in zip(requests, answers, strict=True):
            if "error" in answer:
                book.failures.append(str(answer))
                continue
            book.decided[answer["decision_id"]] = request["session"]
            rewards.append((answer["decision_id"], rng.gauss(0.5, 0.5)))
    told = [{"decision_id": i, "value": value} for i, value in rewards]
    try:
        reply = await connection.post("/v1/reward", told if len(told) > 1 else told[0])
    except ConnectionError:
        book.waiting += rewards
        raise
    if not book.take(reply.status, reply.body):
        book.waiting += rewards
        return
    answers = reply.json() if len(told) > 1 else [reply.json()]
    for (decision_id, value), answer in zip(rewards, answers, strict=True):
        if answer.get("status") in ("applied", "duplicate"):
            book.rewarded[decision_id] = value
        else:
            book.failures.append(str(answer))


@dataclass(frozen=True)
class Audit:
    """What the store holds, against what clients were told."""

    lost_decisions: int
    lost_rewards: int
    wrong_counts: int  # sessions whose number of rewards is not that of their log
    worst_difference: float  # of a belief from the replay of its log
    sessions: int

    @property
    def clean(self) -> bool:
        exact = self.worst_difference <= 1e-9
        return exact and not (self.lost_decisions or self.lost_rewards or self.wrong_counts)

    def __str__(self) -> str:
        return (
            f"{self.lost_rewards} rewards lost, {self.lost_decisions} decisions lost, "
            f"{self.wrong_counts} counted twice; {self.sessions} beliefs equal the replay of "
            f"their log to {self.worst_difference:.1e}"
        )


def read_log(store: str) -> list[LoggedEvent]:
    """Return all events, as a reader sees them that follows the positions."""
    reader = open_log(store)
    events: list[LoggedEvent] = []
    while page := reader.read(events[-1].position if events else 0, 10_000):
        events += page
    reader.close()
    return events


def audit(book: Book, service: RunningService, store: str, models: dict[str, Any]) -> Audit:
    """Ask the running service for every session, and replay the log beside it with mmTS."""
    rows = [event for event in read_log(store) if event.reward is None]
    by_id = {f"{e.decision.order:016x}{e.decision.token:016x}": e for e in rows}
    lost_decisions = sum(decision_id not in by_id for decision_id in book.decided)
    lost_rewards = 0
    for decision_id, value in book.rewarded.items():
        event = by_id.get(decision_id)
        lost_rewards += event is None or event.current is None or event.current.value != value
    histories: dict[str, list[LoggedEvent]] = {}
    for event in rows:
        histories.setdefault(event.session_name, []).append(event)
    worst, wrong = 0.0, 0
    with service.client() as http:
        for name, history in histories.items():
            view = http.get(f"/v1/sessions/{name}").json()
            applied = [
                e for e in history if e.current is not None and e.current.status == "applied"
            ]
            assert "rewards" in view, f"session {name}: {view}"
            wrong += view["rewards"] != len(applied)
            expected = replayed(models[view["model"]], applied)
            worst = max(worst, difference(view["belief"], expected))
    return Audit(lost_decisions, lost_rewards, wrong, worst, len(histories))


def replayed(model: Any, events: Sequence[LoggedEvent]) -> dict[str, Any]:
    """Return the belief of mmTS on these decisions, in the order they were made, not rewarded."""
    policy = mmTS(model)
    belief = policy.init(1)
    for event in sorted(events, key=lambda event: event.decision.order):
        row, reward = event.decision, event.current
        assert reward is not None
        context = None
        if row.features is not None:
            context = np.frombuffer(row.features).reshape(1, row.n_actions, -1)
        action = row.index if context is not None else int(row.action)
        belief = policy.update(belief, context, Decision.logged([action]), [reward.value])
    return describe(belief)


def difference(one: Any, other: Any) -> float:
    """The largest difference of two beliefs' numbers, relative where they are large."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return max(difference(one[name], other[name]) for name in one)
    a, b = np.asarray(one, float), np.asarray(other, float)
    return float((np.abs(a - b) / np.maximum(1.0, np.abs(b))).max())
