"""Processes that share PostgreSQL, and batches that name the same sessions in other orders."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from latentbandits import save
from tests.faults.load import arms
from tests.processes.service import RunningService

SECONDS = float(os.environ.get("LATENTBANDITS_TEST_SHARING_SECONDS", "5"))
BATCH = 60


def ask_in_any_order(
    service: RunningService, seed: int, until: float, seen: Counter[int], took: list[float]
) -> None:
    """Decide and reward for sessions that others use too, some of them new, some merged."""
    rng = random.Random(seed)
    with service.client() as http:
        while time.monotonic() < until:
            latest = int(10 * (until - time.monotonic()))
            names = [f"u{i}" for i in range(90)] + [f"new {latest}/{i}" for i in range(30)]
            body = [{"session": name} for name in rng.sample(names, BATCH)]
            begun = time.monotonic()
            decided = http.post("/v1/decide", json=body)
            took.append(time.monotonic() - begun)
            seen[decided.status_code] += 1
            if decided.status_code != 200:
                continue
            made = [one for one in decided.json() if "decision_id" in one]
            assert len(made) == BATCH
            rng.shuffle(made)
            told = [{"decision_id": one["decision_id"], "value": 0.5} for one in made]
            seen[http.post("/v1/reward", json=told).status_code] += 1


@pytest.mark.slow
def test_batches_in_any_order_do_not_deadlock(tmp_path: Path, postgresql_url: str) -> None:
    save(arms(0), tmp_path / "model")
    seen: Counter[int] = Counter()
    took: list[float] = []  # seconds of each batch of decisions
    with ExitStack() as stack:
        services = [
            stack.enter_context(
                RunningService(tmp_path / "model", "--store", postgresql_url, folder=tmp_path)
            )
            for _ in range(3)
        ]
        with services[0].client() as http:
            http.post("/v1/decide", json=[{"session": f"u{i}"} for i in range(90)])
            for i in range(10):
                merged = {"into": f"u{i}", "other": f"u{80 + i}"}
                assert http.post("/v1/sessions/merge", json=merged).status_code == 200
        until = time.monotonic() + SECONDS
        clients = [
            threading.Thread(target=ask_in_any_order, args=(service, i, until, seen, took))
            for i, service in enumerate(services * 2)
        ]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
    with psycopg.connect(postgresql_url) as connection:
        row = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert set(seen) == {200}, f"{seen}, slowest {max(took):.2f} s"
    assert row == (0,)
