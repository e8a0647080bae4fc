"""Fixtures: an engine on each store that needs no server, small buckets, and few tuned users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from latentbandits.learning import user_hash
from latentbandits.serving.stores.sqlite import MemoryStore, SqliteStore
from tests.unit.engine_driver import ARMS, Driver


@pytest.fixture(params=["memory", "sqlite"])
def arms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.sqlite")
    yield Driver(ARMS, store)
    store.close()


@pytest.fixture(scope="module", autouse=True)
def quick_verdicts(few_tuned_users: None) -> None:
    """Compare policies with few users in all tests of this folder."""


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put 512 users into a summation bucket, so that small logs have several buckets."""
    monkeypatch.setattr(user_hash, "USERS_OF_A_BUCKET", 512)
