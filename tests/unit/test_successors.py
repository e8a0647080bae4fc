"""Successors that lack actions: such actions become new ones, of average mean and wide variance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentbandits import Decision, GaussianArms, LinearGaussian, mmTS
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.composed.ensemble import Ensemble
from latentbandits.models.composed.markov import Markov
from latentbandits.models.growing import add_average
from latentbandits.serving.engine.model_rows import ActionNames, pack
from latentbandits.serving.errors import Invalid
from latentbandits.serving.log import Cursors, log_entries
from latentbandits.serving.stores import open_store
from tests.unit.engine_driver import Driver, forget_beliefs

RNG = np.random.default_rng(11)
FIRST = GaussianArms(RNG.random((3, 4)), 0.5, 0.2)
SECOND = GaussianArms([[0.6, 0.5, 0.5], [0.4, 0.6, 0.6]], 0.4, 0.1)
ITEMS = RNG.normal(size=(3, 2))
LINEAR = LinearGaussian(RNG.normal(size=(4, 2)), 0.3, np.stack([0.1 * np.eye(2)] * 4))
AB = pack(FIRST, "first", Catalogue(["a", "b", "c", "d"]))
BC = pack(SECOND, "second", Catalogue(["b", "c", "e"]))
LINES = pack(LINEAR, "lines", Catalogue(["c", "e", "f"], features=ITEMS))


def grown(model: Any, new: list[str], catalogue: Catalogue | None = None) -> tuple[Any, Any]:
    """Return a model with average actions added, and the features of all its actions."""
    own = catalogue or Catalogue([f"own-{i}" for i in range(model.n_actions)])
    bigger, longer = add_average(model, own, new)
    return bigger, longer.features


def test_models_that_hold_models_grow_with_them() -> None:
    other = GaussianArms(RNG.random((2, 3)), 0.3, 0.1)
    for model in (Markov(SECOND, np.eye(2)), Ensemble([SECOND, other])):
        bigger, _ = grown(model, ["new", "newer"])
        assert (type(bigger), bigger.n_actions) == (type(model), 5)
        mean, variance = bigger.posterior_rewards(bigger.parameters(1), None)
        old, narrow = model.posterior_rewards(model.parameters(1), None)
        np.testing.assert_allclose(mean[..., :3], old, atol=1e-12)
        np.testing.assert_allclose(mean[..., 3], old.mean(axis=-1), atol=1e-12)
        assert (variance[..., 3:] > narrow.mean(axis=-1, keepdims=True)).all()
    linear = Ensemble([LINEAR, LinearGaussian(RNG.normal(size=(4, 2)), 0.3)])
    bigger, items = grown(linear, ["new"], Catalogue(["c", "e", "f"], features=ITEMS))
    mean, _ = bigger.posterior_rewards(bigger.parameters(1), items[None])
    old, _ = linear.posterior_rewards(linear.parameters(1), ITEMS[None])
    np.testing.assert_allclose(mean[..., :3], old, atol=1e-12)
    np.testing.assert_allclose(mean[..., 3], old.mean(axis=-1), atol=1e-12)


def stored(path: Path) -> Driver:
    driver = Driver.__new__(Driver)
    from tests.unit.engine_driver import Clock, Engine, EngineSettings

    driver.clock = Clock()
    driver.store = open_store(f"sqlite:{path}")
    driver.engine = Engine(
        driver.store, EngineSettings(policy="mmTS", snapshot_rounds=3), driver.clock
    )
    return driver


def history(driver: Driver, name: str) -> list[Any]:
    return list(driver.session(name).history)


def belief_of(model: Any, ids: list[str], events: list[Any], items: Any = None) -> list[float]:
    """Replay a session by hand on a grown model whose actions are `ids`."""
    policy = mmTS(model)
    belief = policy.init(1)
    context = None if items is None else items[None]
    for event in events:
        if event.reward is not None:
            decision = Decision.logged([ids.index(event.action)])
            belief = policy.update(belief, context, decision, [event.reward])
    probabilities: list[float] = policy.state_probabilities(belief)[0].tolist()
    return probabilities


def test_an_action_that_the_successor_lacks_is_a_new_one(tmp_path: Path) -> None:
    driver = stored(tmp_path / "store.sqlite")
    rng = np.random.default_rng(3)
    driver.activate(AB)
    for i in range(6):
        driver.tell(driver.ask("ann", actions=["abcd"[i % 4]]), float(rng.normal()))
    driver.play("bob", 3, rng, actions=["b", "c"])
    driver.activate(BC, "migrated")
    # bob played only actions that the new model has, ann did not
    ids, (bigger, _) = ["b", "c", "e", "a", "d"], grown(SECOND, ["a", "d"])
    ann, bob = driver.session("ann"), driver.session("bob")
    expected = belief_of(bigger, ids, ann.history)
    np.testing.assert_allclose(ann.state_probabilities, expected, atol=1e-9)
    expected = belief_of(SECOND, ids, bob.history)
    np.testing.assert_allclose(bob.state_probabilities, expected, atol=1e-9)
    # named actions become eligible; unnamed ones do not
    only = driver.ask("bob", actions=["a"], request_id="once")
    assert (only.action, only.fallback, only.propensity) == ("a", True, 1.0)
    assert driver.ask("bob", actions=["a"], request_id="once") == only
    assert {driver.ask(f"new{i}").action for i in range(60)} == {"b", "c", "e"}
    assert {driver.ask("ann", exclude=["b"]).action for _ in range(30)} == {"c", "e"}
    both = [driver.ask(f"both{i}", actions=["a", "b"]) for i in range(40)]
    assert {one.action for one in both} == {"a", "b"}
    assert all(one.fallback == (one.action == "a") for one in both)
    with pytest.raises(Invalid, match="no action 'zzz'"):
        driver.ask("bob", actions=["a", "zzz"])
    assert driver.ask("bob", actions=["a", "zzz"], default="a").policy == "default"
    for i in range(5):
        driver.tell(driver.ask("bob", actions=["a", "b"]), float(i % 2))
    driver.tell(only, 0.7)
    kept = {name: driver.session(name) for name in ("ann", "bob")}
    # everything again after a restart, with and without snapshots
    driver.store.close()
    again = stored(tmp_path / "store.sqlite")
    for name, view in kept.items():
        np.testing.assert_allclose(
            again.session(name).state_probabilities, view.state_probabilities, atol=1e-12
        )
        for event in history(again, name):
            made = again.recompute(event.decision_id)
            assert made.action == event.action
            assert made.propensity == pytest.approx(event.propensity, abs=1e-12)
            assert made.fallback == event.fallback
    # onwards to a linear model, and back to the first one
    again.activate(LINES, "migrated")
    assert again.ask("bob", actions=["a", "b", "d"]).fallback
    lines, rows = grown(LINEAR, ["a", "b", "d"], Catalogue(["c", "e", "f"], features=ITEMS))
    names = ["c", "e", "f", "a", "b", "d"]
    for name in ("ann", "bob"):
        view = again.session(name)
        expected = belief_of(lines, names, view.history, rows)
        np.testing.assert_allclose(view.state_probabilities, expected, atol=1e-9)
    again.tell(again.ask("bob", actions=["f"]), 0.2)
    again.activate(AB, "migrated")
    back = again.ask("bob", actions=["f", "a"])
    assert back.fallback == (back.action == "f")
    assert again.ask("ann", actions=["f"]).fallback
    bigger, _ = grown(FIRST, ["e", "f"])
    view = again.session("bob")
    expected = belief_of(bigger, ["a", "b", "c", "d", "e", "f"], view.history)
    np.testing.assert_allclose(view.state_probabilities, expected, atol=1e-9)
    for name in ("ann", "bob"):
        for event in history(again, name):
            assert again.recompute(event.decision_id).action == event.action
    entries = [
        log_entries(event, ActionNames(again.store.model), Cursors(b"abcd"))[0]
        for event in again.store.log_reader().read(0, 1000)
        if event.reward is None
    ]
    assert {e.action for e in entries if e.fallback and e.policy != "default"} >= {"a", "f"}
    assert all(e.fallback for e in entries if e.policy == "default")
    again.store.close()


def test_snapshots_of_grown_models_are_used_and_replaced() -> None:
    driver = Driver(GaussianArms([[0.5]], 0.5), snapshot_rounds=2, policy="mmTS")
    driver.activate(AB, "restarted")
    driver.play("ann", 4, np.random.default_rng(1), actions=["a"])
    driver.activate(BC, "migrated")
    driver.play("ann", 4, np.random.default_rng(2), actions=["a", "b"])
    before = driver.session("ann").state_probabilities
    forget_beliefs(driver.engine)
    reads: list[int] = []
    applied = driver.store.applied

    def counted(*arguments: Any, **options: Any) -> Any:
        rows = applied(*arguments, **options)
        reads.append(len(rows))
        return rows

    driver.store.applied = counted
    assert driver.session("ann").state_probabilities == pytest.approx(before, abs=1e-12)
    assert sum(reads) == 0  # the snapshot held all eight


def test_long_sessions_are_rebuilt_on_the_grown_model_a_little_at_a_time() -> None:
    from latentbandits.serving.engine.sessions import SLICE, Rebuilding

    driver = Driver(GaussianArms([[0.5]], 0.5), snapshot_rounds=0, policy="mmTS")
    driver.activate(AB, "restarted")
    driver.play("ann", SLICE + 20, np.random.default_rng(1), actions=["b", "c"])
    driver.activate(BC, "migrated")
    driver.session("ann")
    driver.engine.sessions.restoring.deferring = True
    for _ in range(2):  # the second time with an empty cache
        with pytest.raises(Rebuilding) as raised:
            driver.ask("ann", actions=["a"])
        done = False
        while not done:
            with driver.engine.transaction():
                done = driver.engine.sessions.rebuild(raised.value.key, 0.0)
        answer = driver.ask("ann", actions=["a"])
        assert answer.fallback
        forget_beliefs(driver.engine)
        driver.engine.sessions.restoring.deferring = False
        driver.session("ann")
        driver.engine.sessions.restoring.deferring = True


def test_only_what_callers_depend_on_is_refused() -> None:
    driver = Driver(LINEAR, policy="mmTS")
    driver.ask(features=[[1.0, 0.0]])
    wider = LinearGaussian(RNG.random((2, 3)), 0.3)
    for row in (pack(wider, "wider"), AB):
        with pytest.raises(Invalid, match="features, callers send 2"):
            driver.activate(row)
    ids = Driver(GaussianArms([[0.5]], 0.5), policy="mmTS")
    with pytest.raises(Invalid, match="has no catalogue, and callers name actions"):
        ids.activate(pack(wider, "wider"))
    ids.activate(AB)
    ids.activate(BC)
    ids.activate(LINES)


def test_sessions_on_a_grown_model_merge_and_correct() -> None:
    from latentbandits.serving.engine.values import RewardReport

    driver = Driver(GaussianArms([[0.5]], 0.5), policy="mmTS")
    driver.activate(AB, "restarted")
    rng = np.random.default_rng(5)
    driver.play("ann", 3, rng, actions=["a", "d"])
    driver.play("bob", 3, rng, actions=["b", "c"])
    first = driver.ask("bob", actions=["b"])
    driver.tell(first, 0.1)
    driver.activate(BC, "migrated")
    driver.merge("bob", "ann")
    view = driver.correct(RewardReport(first.decision_id, 0.9)) and driver.session("bob")
    ids, (bigger, _) = ["b", "c", "e", "0", "a", "d"], grown(SECOND, ["0", "a", "d"])
    expected = belief_of(bigger, ids, view.history)
    np.testing.assert_allclose(view.state_probabilities, expected, atol=1e-9)
