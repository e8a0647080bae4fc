"""The engine: what it answers, what it refuses, and that its beliefs are replays of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from latentbandits import Decision, GaussianArms, mmTS
from latentbandits.evaluation.intervals import sequence_width
from latentbandits.policies.registry import Inputs, build, entries
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.values import RewardReport
from latentbandits.serving.errors import Conflict, Invalid, NotFound, StoreUnavailable
from latentbandits.serving.http.messages import DecideRequest
from latentbandits.serving.http.views import describe, overview
from latentbandits.serving.records import parse_decision_id
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.unit.engine_driver import ARMS, LINEAR, OTHER_ARMS, Driver, forget_beliefs

SERVED = [
    f"{entry.name}(horizon=20)" if "horizon" in entry.needs else entry.name
    for entry in entries("session")
    if any(entry.fits(Inputs(model, horizon=20)) for model in (ARMS, LINEAR))
]


def test_a_decision_says_what_it_is(arms: Driver) -> None:
    first = arms.ask()
    assert first.action in ("0", "1", "2", "3")
    assert first.index == int(first.action)
    assert (first.round, first.policy, first.fallback) == (1, "mmTS", False)
    assert first.propensity is not None
    assert 0 < first.propensity <= 1
    np.testing.assert_allclose(first.state_probabilities, ARMS.state_prior)
    assert arms.ask().round == 2
    assert arms.ask("bob").round == 1


def test_only_the_actions_named_are_eligible(arms: Driver) -> None:
    for _ in range(30):
        decided = arms.ask(actions=["3", "1"])
        assert decided.action == ["3", "1"][decided.index]
    with pytest.raises(Invalid, match="no action '9'"):
        arms.ask(actions=["3", "9"])
    with pytest.raises(Invalid, match="names '1' twice"):
        arms.ask(actions=["1", "1"])
    with pytest.raises(Invalid, match="have no features"):
        arms.ask(features=[[1.0]])


def test_a_refused_request_leaves_no_session(arms: Driver) -> None:
    with pytest.raises(Invalid):
        arms.ask("new", actions=["9"])
    with pytest.raises(NotFound, match="no session 'new'"):
        arms.session("new")


def test_a_default_is_played_where_an_action_is_unknown(arms: Driver) -> None:
    decided = arms.ask(actions=["9", "1"], default="9")
    assert (decided.action, decided.index, decided.fallback) == ("9", 0, True)
    assert (decided.policy, decided.propensity) == ("default", 1.0)
    assert arms.tell(decided, 5.0) == "applied"
    np.testing.assert_allclose(arms.session("ann").state_probabilities, ARMS.state_prior)
    assert not arms.ask(actions=["0", "1"], default="1").fallback
    with pytest.raises(Invalid, match="must be one of `actions`"):
        arms.ask(actions=["0"], default="1")


def test_a_request_id_stands_for_one_decision(arms: Driver) -> None:
    first = arms.ask(request_id="r")
    assert arms.ask(request_id="r") == first
    assert arms.session("ann").round == 1
    with pytest.raises(Conflict, match="'r' was used for another request"):
        arms.ask("bob", request_id="r")


def test_a_request_for_a_reward_token_is_the_same_request(arms: Driver) -> None:
    first = arms.ask(request_id="r")
    again = arms.decide(DecideRequest("ann", request_id="r", reward_token=True))
    assert again == first


def test_a_reward_is_told_once(arms: Driver) -> None:
    decided = arms.ask()
    assert arms.tell(decided, 0.5, "e") == "applied"
    assert arms.tell(decided, 0.5, "e") == "duplicate"
    assert arms.tell(decided, 0.5) == "duplicate"
    with pytest.raises(Conflict, match=r"rewarded with 0\.5, not 0\.6"):
        arms.tell(decided, 0.6)
    with pytest.raises(Conflict, match="'e' is the reward of another decision"):
        arms.tell(arms.ask(), 0.5, "e")
    view = arms.session("ann")
    assert (view.rewards, view.mean_reward) == (1, 0.5)


@pytest.mark.parametrize("bad", ["", "x", "0" * 32, "g" * 32, "f" * 32, "0" * 31 + "²"])
def test_an_unknown_decision_is_not_found(arms: Driver, bad: str) -> None:
    arms.ask()
    with pytest.raises(NotFound, match="no decision"):
        arms.reward(RewardReport(bad, 1.0))


def test_a_guessed_token_is_not_found(arms: Driver) -> None:
    text = arms.ask().decision_id
    forged = text[:-1] + ("0" if text[-1] != "0" else "1")
    with pytest.raises(NotFound):
        arms.reward(RewardReport(forged, 1.0))


@pytest.mark.parametrize("policy", SERVED)
def test_belief_is_the_bare_policy_s_on_the_log(policy: str) -> None:
    """A session's belief is what the bare policy makes of the logged decisions and rewards."""
    linear = policy.startswith("Lin")
    model = LINEAR if linear else ARMS
    driver = Driver(model, policy=policy, propensity="policy", snapshot_rounds=5)
    rng = np.random.default_rng(1)
    bare = build(policy, Inputs(model))
    belief = bare.init(1)
    for _ in range(12):
        features = rng.normal(size=(3, 2)) if linear else None
        decided = driver.ask(features=None if features is None else features.tolist())
        value = float(rng.normal())
        driver.tell(decided, value)
        row = driver.store.decision(int(decided.decision_id[:16], 16))
        chance = None if row.propensity is None else [row.propensity]
        told = Decision.logged([decided.index], [row.state], chance)
        belief = bare.update(belief, None if features is None else features[None], told, [value])
    expected = describe(belief)
    live = driver.engine.sessions.find("ann")
    assert live is not None
    _assert_equal(describe(live.belief), expected)
    forget_beliefs(driver.engine)  # now from the snapshot after ten rewards, and two more
    again = driver.engine.sessions.find("ann")
    assert again is not None
    _assert_equal(describe(again.belief), describe(live.belief))


def _assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            _assert_equal(one[name], other[name])
    else:
        a, b = np.array(one, float), np.array(other, float)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_mmts_believes_what_the_bare_policy_believes() -> None:
    driver = Driver(ARMS)
    policy = mmTS(ARMS)
    belief = policy.init(1)
    rng = np.random.default_rng(2)
    for _ in range(20):
        decided = driver.ask()
        value = float(rng.normal())
        driver.tell(decided, value)
        belief = policy.update(belief, None, Decision.logged([decided.index]), [value])
    np.testing.assert_allclose(
        driver.session("ann").state_probabilities, policy.state_probabilities(belief)[0], atol=1e-12
    )


@pytest.mark.parametrize("policy", SERVED)
@pytest.mark.parametrize("propensity", ["counted", "policy", "none"])
def test_a_logged_decision_can_be_made_again(policy: str, propensity: str) -> None:
    linear = policy.startswith("Lin")
    driver = Driver(
        LINEAR if linear else ARMS, policy=policy, propensity=propensity, propensity_draws=20
    )
    rng = np.random.default_rng(3)
    decisions = []
    for i in range(8):
        features = rng.normal(size=(3, 2)).tolist() if linear else None
        actions = ["0", "1", "2"] if i % 2 else None
        decided = driver.ask(features=features, actions=actions)
        decisions.append(decided)
        if i % 3:
            driver.tell(decided, float(rng.normal()))
    for decided in decisions:
        assert driver.recompute(decided.decision_id) == decided


def test_absurd_rewards_are_refused_or_borne() -> None:
    sharp = GaussianArms([[0.0, 1.0], [1.0, 0.0]], 1e-160)
    driver = Driver(sharp)
    decided = driver.ask()
    with pytest.raises(Invalid, match="no state"):
        driver.tell(decided, 1e9)
    assert driver.tell(decided, 0.0) == "applied"
    borne = Driver(ARMS)
    assert borne.tell(borne.ask(), -1e9) == "applied"
    assert borne.tell(borne.ask(), 1e9) == "applied"
    assert np.isfinite(borne.ask().state_probabilities).all()


def test_a_failed_commit_leaves_nothing_behind(tmp_path: Path) -> None:
    class Failing(SqliteStore):
        fail = False

        def commit(self) -> None:
            if self.fail:
                self.rollback()
                raise StoreUnavailable("the disk is full")
            super().commit()

    store = Failing(tmp_path / "s.sqlite")
    driver = Driver(ARMS, store)
    decided = driver.ask()
    driver.tell(decided, 0.4)
    before, totals = driver.session("ann"), driver.engine.statistics
    kept = msgspec.json.encode(totals)
    pending = driver.ask("eve")
    store.fail = True
    for attempt in (lambda: driver.ask(), lambda: driver.tell(pending, 1.0),
                    lambda: driver.activate(pack(OTHER_ARMS, "o"), "migrated"),
                    lambda: driver.merge("ann", "eve"), lambda: driver.delete("ann")):  # fmt: skip
        with pytest.raises(StoreUnavailable):
            attempt()
    store.fail = False
    after = driver.session("ann")
    assert msgspec.structs.replace(after, seen=0) == msgspec.structs.replace(before, seen=0)
    assert driver.session("eve").rewards == 0
    assert driver.tell(pending, 1.0) == "applied"
    assert msgspec.json.decode(kept)["counts"]["applied"] == 1
    assert driver.engine.statistics.counts["applied"] == 2
    store.close()


def test_the_overview_adds_up() -> None:
    driver = Driver(ARMS, holdout_share=0.5)
    rng = np.random.default_rng(11)
    for i in range(40):
        driver.play(f"user {i}", 5, rng)
    with driver.engine.transaction():
        seen = overview(driver.engine)
    assert seen.counts["open"] == seen.counts["started"] == 40
    assert seen.counts["decisions"] == seen.counts["applied"] == 200
    assert {one.group for one in seen.groups} == {"policy", "holdout"}
    assert sum(group.sessions for group in seen.groups) == 40
    assert sum(state.share for state in seen.states) == pytest.approx(1.0)
    assert seen.difference is not None
    logged = [e for e in driver.store.log_reader().read(0, 1000) if e.reward is None]
    for group in seen.groups:
        sums: dict[int, list[float]] = {}
        for event in logged:
            if event.decision.group == group.group and event.current is not None:
                sums.setdefault(event.decision.session, []).append(event.current.value)
        rewards = [value for values in sums.values() for value in values]
        assert group.reward is not None
        assert group.reward.mean == pytest.approx(np.mean(rewards))
        residuals = [sum(v) - np.mean(rewards) * len(v) for v in sums.values()]
        n = len(sums)
        error = np.sqrt(np.sum(np.square(residuals)) * n / (n - 1)) / len(rewards)
        assert group.reward.high is not None
        width = error * np.sqrt(n) * sequence_width(n)  # an interval that holds at every look
        assert group.reward.high - group.reward.mean == pytest.approx(width)
        assert group.rounds[0].rewards == n


@pytest.mark.parametrize("digits", ["0x" + "0" * 30, "+" + "0" * 31, "0" * 31, "0" * 31 + "\n"])
def test_a_decision_has_one_id(digits: str) -> None:
    with pytest.raises(NotFound, match="there is no decision"):
        parse_decision_id(digits)
