"""Fixtures: an engine on each store that needs no server, small buckets, and few tuned users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from latentbandits.learning import user_hash
from latentbandits.learning.assess import verdict
from latentbandits.serving.stores.sqlite import MemoryStore, SqliteStore
from tests.unit.engine_driver import ARMS, Driver


@pytest.fixture(params=["memory", "sqlite"])
def arms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.sqlite")
    yield Driver(ARMS, store)
    store.close()


@pytest.fixture(scope="package", autouse=True)
def few_tuned_users() -> Iterator[None]:
    """Simulate few of the users with whom `fit` compares policies.

    That is most of the time of a fit of a small log. Tests here ask for the model and the report;
    how good the recommended policy is, is tested with all users (`tests/statistical`).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdict, "EFFORT", verdict.EFFORT / 10)
        patch.setattr(verdict, "_SIMULATED_USERS", 200)
        yield


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put 512 users into a summation bucket, so that small logs have several buckets."""
    monkeypatch.setattr(user_hash, "USERS_OF_A_BUCKET", 512)
