"""Sessions of the engine: merged, deleted, expired, held out, and there again after a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from latentbandits import Decision, GaussianArms, mmTS
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.sessions import Rebuilding
from latentbandits.serving.errors import Damaged, NotFound
from latentbandits.serving.http.views import overview
from latentbandits.serving.settings import Group, group_of
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.unit.engine_driver import ARMS, Driver, forget_beliefs


def test_merged_sessions_are_one_user(arms: Driver) -> None:
    rng = np.random.default_rng(4)
    arms.play("phone", 5, rng)
    pending = arms.ask("phone")
    arms.play("laptop", 4, rng)
    together = arms.merge("laptop", "phone")
    assert (together.session, together.round, together.rewards) == ("laptop", 10, 9)
    policy = mmTS(ARMS)
    belief = policy.init(1)
    for event in together.history:
        if event.reward is not None:
            belief = policy.update(belief, None, Decision.logged([event.index]), [event.reward])
    np.testing.assert_allclose(
        together.state_probabilities, policy.state_probabilities(belief)[0], atol=1e-9
    )
    assert arms.ask("phone").round == 11
    assert arms.tell(pending, 0.7) == "applied"
    assert arms.session("phone").session == "laptop"
    assert arms.merge("phone", "laptop").round == 11  # already one
    for event in arms.session("laptop").history:
        assert arms.recompute(event.decision_id).action == event.action
    assert arms.delete("phone") == 2
    with pytest.raises(NotFound):
        arms.session("laptop")


def test_deleting_forgets_everything(arms: Driver) -> None:
    decided = arms.ask(request_id="r")
    arms.tell(decided, 1.0, "e")
    arms.delete("ann")
    for forgotten in (lambda: arms.session("ann"), lambda: arms.delete("ann"),
                      lambda: arms.tell(decided, 1.0)):  # fmt: skip
        with pytest.raises(NotFound):
            forgotten()
    assert arms.ask(request_id="r").round == 1
    assert arms.store.log_reader().read(0, 10)[0].decision.round == 1


def test_sessions_end_and_are_forgotten_in_time() -> None:
    driver = Driver(ARMS, session_ttl=100.0, retention=1000.0)
    first = driver.ask()
    driver.tell(first, 2.0)
    waiting = driver.ask()
    driver.clock.now += 101_000
    assert driver.tell(waiting, 1.0) == "late"
    assert driver.tell(waiting, 1.0) == "duplicate"
    with pytest.raises(NotFound):
        driver.session("ann")
    assert driver.ask().round == 1
    driver.ask("bob")
    driver.clock.now += 200_000
    assert driver.sweep() == 2
    assert driver.sweep() == 0
    assert len(_decided(driver)) == 4
    driver.clock.now += 1_000_000
    assert driver.sweep() == 3
    assert driver.store.log_reader().read(0, 10) == []


def test_holdout_is_a_stable_share_of_sessions() -> None:
    groups = [Group("holdout", "uniform", 0.3)]
    shares = [group_of(f"user {i}", b"salt", groups) == "holdout" for i in range(20_000)]
    assert abs(np.mean(shares) - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 20_000)
    assert [group_of("u", b"salt", groups) for _ in range(3)] == [
        group_of("u", b"salt", groups)
    ] * 3
    assert shares != [group_of(f"user {i}", b"pepper", groups) == "holdout" for i in range(20_000)]
    driver = Driver(ARMS, holdout_share=1.0, holdout_policy="UCB1")
    assert driver.ask().policy == "UCB1"


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store, holdout_share=0.5)
    for name in ("a", "b", "c", "d"):
        driver.play(name, 7, rng)
    driver.merge("a", "b")
    views = [driver.session(name) for name in ("a", "c", "d")]
    with driver.engine.transaction():
        totals = overview(driver.engine)
    store.close()
    store = SqliteStore(tmp_path / "s.sqlite")
    again = Driver(ARMS, store, holdout_share=0.5)
    assert [again.session(name) for name in ("a", "c", "d")] == views
    with again.engine.transaction():
        after = overview(again.engine)
    assert (after.counts, after.groups, after.states) == (
        totals.counts,
        totals.groups,
        totals.states,
    )
    assert after.models == totals.models
    store.close()


def test_a_small_cache_changes_nothing() -> None:
    wide, narrow = Driver(ARMS), Driver(ARMS, cached_sessions=1)
    for driver in (wide, narrow):
        rng = np.random.default_rng(10)
        for _ in range(6):
            for name in ("a", "b", "c"):
                decided = driver.ask(name, actions=["1"])
                driver.tell(decided, float(rng.normal()))
    for name in ("a", "b", "c"):
        assert narrow.session(name).belief == wide.session(name).belief


def test_asking_for_an_expired_session_ends_it_for_good(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store, session_ttl=100.0)
    driver.ask("ann")
    driver.clock.now += 101_000
    with driver.engine.transaction(), pytest.raises(NotFound):
        driver.engine.latest("ann")
    store.close()
    store = SqliteStore(tmp_path / "s.sqlite")
    again = Driver(ARMS, store, session_ttl=100.0)
    with again.engine.transaction():
        counts = overview(again.engine).counts
    assert (counts["started"], counts["expired"], counts["open"]) == (1, 1, 0)
    store.close()


def test_the_overview_loads_no_models(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store)
    for i in range(20):
        model = GaussianArms(np.full((2, 4), i / 20), 0.3)
        driver.activate(pack(model, f"model {i}"), "pinned")
    store.close()
    store = SqliteStore(tmp_path / "s.sqlite")
    engine = Engine(store)
    with engine.transaction():
        seen = overview(engine)
    assert len(seen.models.models) == 21
    assert {view.n_actions for view in seen.models.models} == {4}
    assert len(engine.library._used) == 1  # the active one
    store.close()


def test_a_session_whose_log_lacks_rewards_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store, snapshot_rounds=0)
    driver.play("ann", 100, np.random.default_rng(1))
    driver.play("bob", 3, np.random.default_rng(1))
    assert store._connection is not None
    store._connection.execute("DELETE FROM rewards WHERE id = (SELECT min(id) FROM rewards)")
    forget_beliefs(driver.engine)
    with pytest.raises(Damaged, match="session 'ann' states 100 rewards"):
        driver.ask("ann")
    driver.engine.sessions.restoring.deferring = True
    with pytest.raises(Rebuilding) as raised:
        driver.ask("ann")
    with driver.engine.transaction():
        while not driver.engine.sessions.rebuild(raised.value.key, 1.0):
            pass
    with pytest.raises(Damaged, match="session 'ann' states 100 rewards"):
        driver.ask("ann")
    assert driver.ask("bob").round == 4
    store.close()


def _decided(driver: Driver) -> list[int]:
    events = driver.store.log_reader().read(0, 100)
    return [event.decision.order for event in events if event.reward is None]
