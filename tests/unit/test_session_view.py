"""The answer about a session is bounded in bytes, whatever the session holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.serving.engine.values import DecisionRequest
from latentbandits.serving.http.endpoints import Call, show_session
from latentbandits.serving.http.keys import ANYONE
from latentbandits.serving.http.messages import SessionView
from latentbandits.serving.http.service import Service
from latentbandits.serving.http.views import SHOWN
from latentbandits.serving.records import RewardedDecision
from latentbandits.serving.settings import Settings
from latentbandits.serving.stores import sql
from latentbandits.serving.stores.sqlite import MemoryStore, SqliteStore
from tests.unit.engine_driver import Driver, session_view


def test_a_large_belief_is_shown_by_its_shape() -> None:
    n = 300  # 2 x 300 x 300 numbers of covariance
    driver = Driver(LinearGaussian(np.zeros((2, n)), 0.5, np.stack([np.eye(n)] * 2)), policy="mmTS")
    driver.decide(DecisionRequest("ann", features=np.ones((2, n)).tolist()))
    view = driver.session("ann")
    assert 2 * n * n > SHOWN
    assert view.belief["parameters"]["covariance"] == {"shape": [2, n, n]}
    assert len(msgspec.json.encode(view)) < 100_000


def test_a_small_belief_is_shown_in_full() -> None:
    driver = Driver(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1), policy="mmTS")
    driver.decide(DecisionRequest("ann"))
    assert np.shape(driver.session("ann").belief["log_weights"]) == (2,)


def test_a_history_of_large_features_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_HISTORY_BYTES", 5 * 2 * 3 * 8)  # five rounds of 2 x 3 numbers
    model = LinearGaussian(np.zeros((2, 3)), 0.5, np.stack([np.eye(3)] * 2))
    driver = Driver(model, SqliteStore(tmp_path / "store.sqlite"), policy="mmTS")
    for _ in range(12):
        driver.decide(DecisionRequest("ann", features=np.ones((2, 3)).tolist()))
    assert [event.round for event in driver.session("ann").history] == [8, 9, 10, 11, 12]


@pytest.mark.parametrize("durable", [True, False])
def test_a_history_has_the_latest_decisions_of_all_merged_sessions(
    tmp_path: Path, durable: bool
) -> None:
    store = SqliteStore(tmp_path / "store.sqlite") if durable else MemoryStore()
    driver = Driver(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1), store)
    decided = [driver.ask(f"s{i % 4}") for i in range(12)]
    for i in range(3):
        driver.merge(f"s{i + 1}", f"s{i}")
    with driver.engine.transaction():
        shown = session_view(driver.engine, "s0", 5).history
    assert [event.decision_id for event in shown] == [one.decision_id for one in decided[-5:]]


def test_a_long_history_is_read_a_few_decisions_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests of others have their turns in between."""
    store = SqliteStore(tmp_path / "store.sqlite", "NORMAL")
    driver = Driver(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1), store)
    with driver.engine.transaction():
        decided = [driver.engine.decide(DecisionRequest("ann")) for _ in range(120)]
    sizes = []
    read = SqliteStore.history

    def counted(self: SqliteStore, orders: Sequence[int]) -> list[RewardedDecision]:
        sizes.append(len(orders))
        return read(self, orders)

    monkeypatch.setattr(SqliteStore, "history", counted)

    async def show() -> SessionView:
        service = Service(driver.engine, Settings())
        await service.start()
        view = await show_session(Call(service, None, {"session": "ann"}, ANYONE))
        await service.stop()
        return view

    view = asyncio.run(show())
    assert [event.decision_id for event in view.history] == [one.decision_id for one in decided]
    assert view.round == 120
    assert max(sizes) <= 25
