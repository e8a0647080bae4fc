"""`check` finds nothing wrong where nothing is: snapshots are replayed as the engine does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from latentbandits import GaussianArms
from latentbandits.beliefs.encoding import decode, encode
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Category, Encoder
from latentbandits.models.attributes.parts import Gate, with_parts
from latentbandits.serving.check import CheckResult, check
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.replay import learn
from latentbandits.serving.engine.values import NewAction
from latentbandits.serving.stores import open_store, open_tables
from tests.unit.engine_driver import ARMS, Driver

RNG = np.random.default_rng(4)
FIRST = pack(GaussianArms(RNG.random((3, 4)), 0.5, 0.2), "first", Catalogue(list("abcd")))
SECOND = pack(GaussianArms(RNG.random((2, 3)), 0.4, 0.1), "second", Catalogue(list("bce")))
THIRD = pack(GaussianArms(RNG.random((2, 3)), 0.4, 0.1), "third", Catalogue(list("bfg")))
MODEL = GaussianArms([[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]], 0.5, 0.1, [0.3, 0.7])
ENCODER = Encoder((Category("country", ("AT", "DE"), (0.25, 0.75)),))
GATE = Gate(ENCODER, np.array([[0.2, 1.0], [0.0, -1.0]]), ({"country": "AT"},))
GATED = pack(with_parts(MODEL, gate=GATE), "gated", Catalogue(list("abc")))
USER = {"country": "DE"}


def play(driver: Driver, name: str, actions: str, rounds: int = 6) -> None:
    for i in range(rounds):
        action = actions[i % len(actions)]
        driver.tell(driver.ask(name, actions=[action]), float(i % 2))


def added(driver: Driver) -> None:
    driver.add_actions([NewAction("new")])
    driver.play("ann", 6, np.random.default_rng(1))


def added_and_played(driver: Driver) -> None:
    driver.add_actions([NewAction("new")])
    for i in range(6):
        driver.tell(driver.ask("ann", actions=["new"]), float(i % 2))


def migrated(driver: Driver) -> None:
    driver.activate(SECOND, "migrated")
    play(driver, "ann", "bce")


def migrated_and_new_actions(driver: Driver) -> None:
    driver.activate(SECOND, "migrated")
    play(driver, "ann", "ab")


def pinned_and_new_actions(driver: Driver) -> None:
    driver.activate(SECOND, "pinned")
    play(driver, "ann", "ae")


def migrated_twice(driver: Driver) -> None:
    """The snapshot of ann is of a model with fewer new actions than it would have now."""
    driver.activate(SECOND, "migrated")
    play(driver, "ann", "ab")
    driver.activate(THIRD, "pinned")


def added_played_and_migrated(driver: Driver) -> None:
    added_and_played(driver)
    driver.activate(SECOND, "migrated")
    play(driver, "ann", "ab")
    driver.ask("bob")


def merged(driver: Driver) -> None:
    migrated_and_new_actions(driver)
    play(driver, "eve", "ab")
    driver.merge("ann", "eve")
    play(driver, "ann", "abc")


def of_a_user_with_attributes(driver: Driver) -> None:
    driver.activate(GATED, "pinned")
    for i in range(6):
        driver.tell(driver.ask("kim", user_features=USER), float(i % 2))


SEQUENCES: list[Callable[[Driver], None]] = [
    added, added_and_played, migrated, migrated_and_new_actions, pinned_and_new_actions,
    migrated_twice, added_played_and_migrated, merged,
    of_a_user_with_attributes,
]  # fmt: skip


def checked(url: str) -> CheckResult:
    with open_tables(url) as tables:
        return check(tables)


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: sequence.__name__)
def test_a_healthy_store_has_no_problems(
    tmp_path: Path, sequence: Callable[[Driver], None]
) -> None:
    url = f"sqlite:{tmp_path / 'store.sqlite'}"
    driver = Driver(ARMS, open_store(url), policy="mmTS", snapshot_rounds=3)
    driver.activate(FIRST, "restarted")
    play(driver, "ann", "abcd")
    driver.play("bob", 6, np.random.default_rng(2))
    sequence(driver)
    driver.store.close()
    result = checked(url)
    assert result.counts["snapshots"] >= 2
    assert result.problems == []


def test_a_snapshot_that_is_none_of_its_log_is_found(tmp_path: Path) -> None:
    """Also of a model that grew: one of its rewards is learned twice."""
    url = f"sqlite:{tmp_path / 'store.sqlite'}"
    driver = Driver(ARMS, open_store(url), policy="mmTS", snapshot_rounds=3)
    driver.activate(FIRST, "restarted")
    play(driver, "ann", "abcd")
    migrated_and_new_actions(driver)
    driver.store.begin()
    key = driver.store.session_named("ann").key
    snapshot = driver.store.snapshot(key)
    driver.store.put_snapshot(replace(snapshot, learned=snapshot.learned - 1))
    driver.store.commit()
    assert checked(url).problems == ["the snapshot of session 'ann' is not one of its log"]
    row, reward = driver.store.applied(key)[0].decision, 1.0
    served = driver.engine.library.grown(snapshot.model)
    group = served.of_group("policy")
    belief = learn(group, served, decode(group.policy, snapshot.belief), row, reward)
    driver.store.begin()
    driver.store.put_snapshot(replace(snapshot, belief=encode(group.policy, belief)))
    driver.store.commit()
    driver.store.close()
    (problem,) = checked(url).problems
    assert "the snapshot of session 'ann' differs by" in problem
