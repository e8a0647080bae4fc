"""An engine for the tests that drive one, on each store that needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from latentbandits.serving.stores.memory import MemoryStore
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.unit.engine_driver import ARMS, Driver


@pytest.fixture(params=["memory", "sqlite"])
def arms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.sqlite")
    yield Driver(ARMS, store)
    store.close()
