"""Models, and an engine that is driven one call at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.values import Decided, DecisionRequest, RewardReport
from latentbandits.serving.http.messages import SessionView
from latentbandits.serving.http.views import events_of, view_with
from latentbandits.serving.stores.sqlite import MemoryStore

RNG = np.random.default_rng(5)
ARMS = GaussianArms(RNG.random((3, 4)), 0.5, 0.2, [0.2, 0.3, 0.5])
OTHER_ARMS = GaussianArms(RNG.random((3, 4)), 0.4, 0.1)
ROOTS = RNG.normal(size=(3, 2, 2))
LINEAR = LinearGaussian(RNG.normal(size=(3, 2)), 0.5, 0.1 * ROOTS @ ROOTS.swapaxes(1, 2))


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


def session_view(engine: Engine, name: str, most: int = 1_000) -> SessionView:
    """Return a session with its latest decisions; called inside a transaction."""
    live, orders = engine.latest(name, most)
    return view_with(live, events_of(engine.history(orders)))


def forget_beliefs(engine: Engine) -> None:
    """Let the beliefs of all open sessions be restored from the store."""
    for row in engine.store.open_since(1_000_000):
        engine.sessions.drop(row)


class Driver:
    """One call, one transaction."""

    def __init__(self, model: Any, store: Any = None, **settings: Any) -> None:
        self.clock = Clock()
        self.store = MemoryStore() if store is None else store
        self.engine = Engine(self.store, EngineSettings(**settings), self.clock)
        with self.engine.transaction():
            self.engine.start_with(pack(model, "model"))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            with self.engine.transaction():
                return getattr(self.engine, name)(*arguments, **options)

        return call

    def session(self, name: str) -> SessionView:
        with self.engine.transaction():
            return session_view(self.engine, name)

    def merge(self, into: str, other: str) -> SessionView:
        with self.engine.transaction():
            self.engine.merge(into, other)
            return session_view(self.engine, into)

    def ask(self, session: str = "ann", **fields: Any) -> Decided:
        answer: Decided = self.decide(DecisionRequest(session, **fields))
        return answer

    def tell(self, decided: Decided, value: float, event_id: str | None = None) -> str:
        status: str = self.reward(RewardReport(decided.decision_id, value, event_id)).status
        return status

    def play(self, session: str, rounds: int, rng: np.random.Generator, **fields: Any) -> None:
        for _ in range(rounds):
            self.tell(self.ask(session, **fields), float(rng.normal(0.5, 0.5)))
