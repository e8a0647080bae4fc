"""Relearn beside administrators, kills and writers: it activates only what it has judged.

The service is the real one. Candidates are planted, so that a run takes no longer than its verdict.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from evidence import loop_visits as visits
from evidence.loop_users import SimulatedUsers
from evidence.loop_visits import served

from latentbandits import GaussianArms, load, save
from latentbandits.client import Client
from latentbandits.client_protocol import NoAnswerError, ServiceError
from latentbandits.learning import fit
from latentbandits.loop.kept_log import KeptLog, ServiceSource
from latentbandits.loop.records import Run, locked
from latentbandits.loop.relearn import LoopSettings, Relearner
from latentbandits.serving.export import frame
from tests.processes.service import run_command

MEANS = np.array([[0.9, 0.1, 0.3], [0.6, 0.2, 0.1]])
NOISE = 0.5


def visit(client: Client, prefix: str, n_sessions: int, seed: int = 0) -> None:
    users, rng = SimulatedUsers(MEANS, NOISE, 2), np.random.default_rng(seed)
    visits.visit(client, prefix, users, users.visitors(rng), n_sessions, rng)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Path, str, Client]]:
    """A service whose model takes the worst actions for the best, with a log to judge on."""
    models = tmp_path / "models"
    save(GaussianArms(1 - MEANS, NOISE, spread=0.05), models / "first")
    save(GaussianArms(1.1 - MEANS, NOISE, spread=0.05), models / "by-hand")
    options = ("--policy", "mTS", "--explore", "0.9", "--models", str(models))
    with served(models / "first", tmp_path, *options) as url, Client(url, timeout=20.0) as client:
        visit(client, "visitor", 800)
        yield tmp_path, url, client


def learn(paths: Any, options: Any, progress: Any) -> Any:
    chosen: Any = {"kind": "arms", "rewards": "gaussian", "states": 1, "bootstrap": 0}
    return fit(pl.read_parquet(paths[-1]), **chosen, assess=False)


def relearner(
    folder: Path, client: Any, learner: Any = learn, work: str = "work", **other: Any
) -> Relearner:
    settings = LoopSettings(
        folder / work, folder / "models", policy="mTS", held_out=0.5, **{"margin": -1.0} | other
    )
    return Relearner(settings, client, ServiceSource(client), learner)


class Hooked:
    """The client, with something that happens when the loop asks for the activation."""

    def __init__(self, client: Client, activate: Any) -> None:
        self._client = client
        self.activate = activate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def outcome(run: Run) -> tuple[str, str]:
    return run.decision, run.outcome


def test_an_activation_by_hand_during_a_run_wins(running: tuple[Path, str, Client]) -> None:
    folder, _, client = running

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        client.activate("by-hand")
        return learn(*arguments, **options)

    run = relearner(folder, client, meanwhile).run()
    assert outcome(run) == ("activate", "overridden"), run.why
    by_hand = client.models().active
    assert by_hand != run.candidate
    assert f"the active model is {by_hand}" in run.why
    assert [swap.model for swap in client.models().swaps] == [run.current, by_hand]
    visit(client, "more", 20)
    again = relearner(folder, client).run()  # judged against the one that is active now
    assert again.current == by_hand
    assert outcome(again) == ("activate", "done"), again.why


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_activation_is_judged_anew(
    running: tuple[Path, str, Client],
) -> None:
    folder, _, client = running
    first = client.models().active

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        relearner(folder, Hooked(client, die)).run()
    loop = relearner(folder, client, margin=1e9)
    assert loop.records.all()[-1].outcome == "planned"
    run = loop.run()
    assert outcome(run) == ("keep", "done"), run.why
    assert outcome(loop.records.all()[0]) == ("activate", "failed")
    assert client.models().active == first


@pytest.mark.slow
def test_a_run_that_was_killed_after_its_activation_is_recorded(
    running: tuple[Path, str, Client],
) -> None:
    folder, _, client = running

    def activate_and_die(*arguments: Any, **options: Any) -> None:
        client.activate(*arguments, **options)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        relearner(folder, Hooked(client, activate_and_die)).run()
    client.activate("by-hand")  # the record must not depend on what is active now
    loop = relearner(folder, client, margin=1e9)
    loop.run()
    before = loop.records.all()[0]
    assert outcome(before) == ("activate", "done")
    assert before.activated > before.started[:10]


@pytest.mark.slow
def test_an_activation_without_an_answer_is_settled_by_the_next_run(
    running: tuple[Path, str, Client],
) -> None:
    folder, _, client = running

    def no_answer(*arguments: Any, **options: Any) -> None:
        client.activate(*arguments, **options)
        raise NoAnswerError("the connection broke")

    run = relearner(folder, Hooked(client, no_answer)).run()
    assert outcome(run) == ("activate", "planned")
    loop = relearner(folder, client)
    loop.run()
    assert outcome(loop.records.all()[0]) == ("activate", "done")


def test_actions_that_were_added_are_part_of_what_is_compared(
    running: tuple[Path, str, Client],
) -> None:
    folder, _, client = running
    first = client.models().active
    client.add_action("new", vector=[0.5, 0.5])
    for i in range(300):  # nobody names actions: the new one is among them
        decided = client.decide(f"later-{i}")
        means = [*MEANS[i % 2], 0.4]
        index = int(decided.action) if decided.action != "new" else 3
        client.reward(decided.decision_id, means[index])
    run = relearner(folder, client).run()
    assert outcome(run) == ("activate", "done"), run.why
    assert run.current != first
    assert run.verdict["n_sessions"] > 0.9 * 0.5 * 1100 * 0.8
    assert client.decide("after").action in ("0", "1", "2", "new")


@pytest.mark.slow
def test_a_new_work_folder_overwrites_no_model(running: tuple[Path, str, Client]) -> None:
    folder, _, client = running
    one = relearner(folder, client, margin=1e9).run()
    kept = load(one.candidate_path)
    visit(client, "more", 50)
    two = relearner(folder, client, work="other", margin=1e9, keep=1).run()
    assert one.number == two.number == 1
    assert one.candidate_path != two.candidate_path
    np.testing.assert_array_equal(load(one.candidate_path).means, kept.means)


@pytest.mark.slow
def test_an_activation_is_refused_where_another_model_is_active(
    running: tuple[Path, str, Client],
) -> None:
    _, _, client = running
    first = client.models().active
    with pytest.raises(ServiceError, match=f"the active model is {first}") as caught:
        client.activate("by-hand", if_active="a3628c42ec49")
    assert caught.value.status == 409
    assert client.models().active == first
    assert client.activate("by-hand", if_active=first).active != first


def test_rewards_that_come_between_two_pages_are_kept(
    running: tuple[Path, str, Client],
) -> None:
    """50 rewards, one after each page, for decisions of earlier pages; a kill after some pages."""
    folder, _, client = running
    waiting = [client.decide(f"slow-{i}").decision_id for i in range(50)]

    class Paging:
        """Asks for small pages, and a reward comes after each of them."""

        def __init__(self, most: float) -> None:
            self.left = most

        def log(self, since: str, until: str) -> Any:
            page = client.log(since, limit=70, until=until)
            if waiting:
                client.reward(waiting.pop(), 0.25)
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return page

        def forgotten(self, decisions: Any) -> Any:
            return client.forgotten(decisions[:1000])

    kept = KeptLog(folder / "work")
    for most in (3, np.inf, 2, np.inf, np.inf):
        try:
            logged = kept.update(ServiceSource(Paging(most)))  # type: ignore[arg-type]
        except KeyboardInterrupt:
            continue
    assert not waiting
    now = frame(list(client.entries())).sort("decision_id")
    assert logged.decisions.drop("cursor").equals(now.drop("cursor"))
    assert (logged.decisions["reward"] == 0.25).sum() == 50


def test_a_work_folder_in_use_says_who_uses_it(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    words = ("--service", "http://127.0.0.1:9", "--models", tmp_path / "models")
    with locked(tmp_path / "work"):
        done = run_command("relearn", *words, "--work", tmp_path / "work")
    assert done.returncode == 2
    assert f"in use by another relearn process (number {os.getpid()})" in done.stderr
    assert "own --work" not in done.stderr
