"""Relearn and the service are killed at random moments of the loop: nothing is lost or half done.

Both run as the real commands in processes of their own, forked from a server that has imported
them, so that a kill costs no start of an interpreter.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from evidence import loop_visits as visits
from evidence.loop_users import SimulatedUsers

from latentbandits import GaussianArms, save
from latentbandits.client import Client
from latentbandits.client_protocol import ServiceError
from latentbandits.loop.records import read_runs
from latentbandits.serving.engine.model_rows import read_artefact
from latentbandits.serving.export import frame
from tests.processes.service import free_port

MEANS = np.array([[0.9, 0.1, 0.3], [0.6, 0.2, 0.1]])
USERS = SimulatedUsers(MEANS, 0.5, 10)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["latentbandits.cli.relearn", "latentbandits.loop.relearn", "latentbandits.serving.http.app",
     "latentbandits.learning.assess.figures", "tests.endtoend.test_loop_kills"]
)  # fmt: skip


def run_quietly(words: list[str], log: str) -> None:
    from latentbandits.cli import main

    with Path(log).open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    raise SystemExit(main(words))


class Loop:
    """A service and relearn, and all that the service acknowledged to visitors."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.models = folder, folder / "models"
        save(GaussianArms(1 - MEANS, 0.5, spread=0.05), self.models / "first")
        pl.DataFrame(USERS.table(60, np.random.default_rng(5))).write_csv(folder / "old.csv")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url, timeout=5.0)
        self.acknowledged: dict[str, tuple[str, float | None]] = {}
        self.service = self.start_service()

    def _process(self, *words: str | Path) -> ForkServerProcess:
        process = FORKS.Process(
            target=run_quietly, args=(list(map(str, words)), str(self.folder / "commands.log"))
        )
        process.start()
        return process

    def start_service(self) -> ForkServerProcess:
        store = f"sqlite:{self.folder / 'store.sqlite'}"
        process = self._process(
            "serve", self.models / "first", "--port", str(self.port), "--store", store, "--models",
            self.models, "--policy", "mTS", "--explore", "0.8", "--snapshot-rounds", "2",
            "--insecure-admin",
        )  # fmt: skip
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(ServiceError):
                self.client.models()
                return process
            time.sleep(0.05)
        raise AssertionError((self.folder / "commands.log").read_text()[-2000:])

    def start_relearn(self) -> ForkServerProcess:
        return self._process(
            "relearn", "--service", self.url, "--models", self.models, "--work",
            self.folder / "work", "--policy", "mTS", "--held-out", "0.5", "--margin", "-0.5",
            "--with", self.folder / "old.csv", "--keep", "1000",
        )  # fmt: skip

    def visit(self, name: str, n_sessions: int, rng: np.random.Generator) -> None:
        """Play short sessions, remember what was acknowledged, and bear a dead service."""
        for i in range(n_sessions):
            with contextlib.suppress(ServiceError):
                user = MEANS[rng.integers(2)]
                for _ in range(2):
                    decided = self.client.decide(f"{name}-{i}")
                    self.acknowledged[decided.decision_id] = (decided.action, None)
                    reward = float(user[int(decided.action)] + 0.5 * rng.standard_normal())
                    self.client.reward(decided.decision_id, reward)
                    self.acknowledged[decided.decision_id] = (decided.action, reward)

    def check_whole(self) -> None:
        """The active model is one that can be read as a whole, and it decides."""
        active = self.client.models().active
        whole = {read_artefact(path).id for path in self.models.glob("[!.]*")}
        assert active in whole
        assert self.client.decide("probe").model in whole


def kill_at_random(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill relearn and the service, in turn, at random moments while relearn runs."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    loop = Loop(folder)
    counts = {"relearn": 0, "service": 0}
    try:
        pairs = SimulatedUsers(MEANS, 0.5, 2)
        visits.visit(loop.client, "start", pairs, pairs.visitors(rng), 1200, rng)
        begun = time.monotonic()
        whole = loop.start_relearn()
        whole.join(300)
        assert whole.exitcode == 0, (folder / "commands.log").read_text()[-2000:]
        seconds = time.monotonic() - begun
        for i in range(kills):
            loop.visit(f"v{i}", 4, rng)
            victim = ("relearn", "service")[i % 2]
            relearn = loop.start_relearn()
            time.sleep(chance.uniform(0, seconds))
            if victim == "relearn":
                relearn.kill()
                relearn.join()
            else:
                loop.service.kill()
                loop.service.join()
                loop.visit(f"dead{i}", 1, rng)
                loop.service = loop.start_service()
                relearn.join(300)
                assert relearn.exitcode is not None
            counts[victim] += 1
            loop.check_whole()
        loop.visit("end", 10, rng)
        last = loop.start_relearn()
        last.join(300)
        assert last.exitcode == 0, (folder / "commands.log").read_text()[-2000:]
        check_nothing_lost(loop)
    finally:
        loop.client.close()
        loop.service.kill()
    return counts


def check_nothing_lost(loop: Loop) -> None:
    entries = list(loop.client.entries())
    logged = {entry.decision_id: entry for entry in entries}
    for decision_id, (action, reward) in loop.acknowledged.items():
        assert logged[decision_id].action == action
        if reward is not None:
            assert logged[decision_id].reward == reward
    (kept,) = (loop.folder / "work" / "log").glob("*.parquet")
    now = frame(entries).sort("decision_id")
    assert pl.read_parquet(kept).drop("cursor").equals(now.drop("cursor"))
    runs = list(read_runs(loop.folder / "work" / "runs"))
    assert all(run.outcome != "planned" for run in runs)
    done = [r for r in runs if r.outcome == "done" and r.decision in ("activate", "roll back")]
    assert done  # the loop had something to lose
    swaps = [swap.model for swap in loop.client.models().swaps]
    assert swaps[1:] == [run.candidate for run in done]  # each activation once, none without record
    assert not list((loop.folder / "work" / "log").glob(".*"))
    assert not list(loop.models.glob(".*"))
    assert not list((loop.folder / "work").glob("training*"))


def test_a_few_kills_of_relearn_and_of_the_service(tmp_path: Path) -> None:
    assert kill_at_random(tmp_path, 2, seed=2) == {"relearn": 1, "service": 1}


@pytest.mark.slow
def test_a_hundred_kills_of_relearn_and_of_the_service(tmp_path: Path) -> None:
    counts: dict[str, Any] = kill_at_random(tmp_path, 100, seed=3)
    assert counts == {"relearn": 50, "service": 50}
