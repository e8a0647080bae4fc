"""Rewards of the engine: corrected, given by default, refused; and the log that shows them."""

from __future__ import annotations

import numpy as np
import pytest

from latentbandits import Decision, mmTS
from latentbandits.serving.engine.engine import EngineSettings
from latentbandits.serving.engine.values import RewardReport
from latentbandits.serving.errors import Conflict, Invalid, NotFound
from tests.unit.engine_driver import ARMS, Driver, forget_beliefs


def believed(actions: list[int], values: list[float]) -> np.ndarray:
    """Return the state probabilities of the bare policy after these rewards."""
    policy = mmTS(ARMS)
    belief = policy.init(1)
    for action, value in zip(actions, values, strict=True):
        belief = policy.update(belief, None, Decision.logged([action]), [value])
    return policy.state_probabilities(belief)[0]


def test_a_correction_replaces_a_reward(arms: Driver) -> None:
    made = [arms.ask(actions=[str(i % 4)]) for i in range(70)]
    values = [float(v) for v in np.random.default_rng(3).normal(0.5, 0.5, 70)]
    for decided, value in zip(made, values, strict=True):
        arms.tell(decided, value)
    values[7] = 2.5
    assert arms.correct(RewardReport(made[7].decision_id, 2.5), "root").status == "applied"
    assert arms.correct(RewardReport(made[7].decision_id, 2.5)).status == "duplicate"
    view = arms.session("ann")
    assert view.rewards == 70
    assert view.mean_reward == pytest.approx(np.mean(values))
    expected = believed([int(d.action) for d in made], values)
    np.testing.assert_allclose(view.state_probabilities, expected, atol=1e-9)
    forget_beliefs(arms.engine)
    np.testing.assert_allclose(arms.session("ann").state_probabilities, expected, atol=1e-9)
    events = [e for e in arms.store.log_reader().read(0, 1000) if e.reward is not None]
    last = events[-1].reward
    assert last is not None
    assert (last.kind, last.value, last.who) == ("correction", 2.5, "root")
    with arms.engine.transaction():
        actions = [line.action for line in arms.store.audit(0, 100)]
    assert actions == ["activate", "correct"]
    totals = arms.engine.statistics
    assert totals.counts["applied"] == 70
    assert totals.counts["replaced"] == 1
    assert totals.group("policy").reward_sum == pytest.approx(sum(values))


def test_only_a_reward_can_be_corrected(arms: Driver) -> None:
    decided = arms.ask()
    with pytest.raises(NotFound, match="no reward of decision"):
        arms.correct(RewardReport(decided.decision_id, 1.0))
    arms.tell(decided, 1.0)
    with pytest.raises(Conflict, match="PUT corrects it"):
        arms.tell(decided, 2.0)


def test_decisions_made_before_a_correction_are_recomputed_as_they_were(arms: Driver) -> None:
    first = arms.ask()
    arms.tell(first, 1.0)
    second = arms.ask()
    arms.correct(RewardReport(first.decision_id, -1.0))
    third = arms.ask()
    assert arms.recompute(second.decision_id) == second
    assert arms.recompute(third.decision_id) == third


def test_decisions_without_a_reward_get_the_default() -> None:
    driver = Driver(ARMS, reward_default=0.0, reward_timeout=10.0)
    told, silent = driver.ask("ann", actions=["1"]), driver.ask("ann", actions=["2"])
    driver.tell(told, 0.7)
    driver.clock.now += 9_000
    fresh = driver.ask("bob")
    assert driver.sweep() == 0
    driver.clock.now += 2_000
    assert driver.sweep() == 1
    assert driver.sweep() == 0
    np.testing.assert_allclose(
        driver.session("ann").state_probabilities, believed([1, 2], [0.7, 0.0]), atol=1e-12
    )
    kinds = [event.reward_kind for event in driver.session("ann").history]
    assert kinds == ["reward", "default"]
    assert driver.tell(silent, 0.4) == "applied"  # the true reward comes after all
    np.testing.assert_allclose(
        driver.session("ann").state_probabilities, believed([1, 2], [0.7, 0.4]), atol=1e-12
    )
    assert driver.session("bob").history[0].reward is None
    driver.clock.now += 20_000
    assert driver.sweep() == 1
    assert driver.tell(fresh, 1.0) == "applied"
    assert driver.tell(fresh, 1.0) == "duplicate"


def test_a_default_does_not_keep_a_session_open() -> None:
    driver = Driver(ARMS, reward_default=0.0, reward_timeout=10.0, session_ttl=100.0)
    driver.ask("ann")
    for _ in range(12):
        driver.clock.now += 10_000
        driver.sweep()
    with pytest.raises(NotFound):
        driver.session("ann")


def test_rewards_out_of_range_are_refused() -> None:
    driver = Driver(ARMS, reward_min=0.0, reward_max=1.0)
    decided = driver.ask()
    for wrong, why in ((-0.1, "below reward_min, which is 0"), (1.5, "above reward_max")):
        with pytest.raises(Invalid, match=why):
            driver.tell(decided, wrong)
    assert driver.tell(decided, 1.0) == "applied"
    with pytest.raises(Invalid, match="above reward_max"):
        driver.correct(RewardReport(decided.decision_id, 2.0))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"reward_default": 1.0}, "go together"),
        ({"reward_timeout": 1.0}, "go together"),
        ({"reward_default": 1.0, "reward_timeout": 0.0}, "above 0"),
        ({"reward_min": 1.0, "reward_max": 0.0}, "is above reward_max"),
        ({"reward_default": 2.0, "reward_timeout": 1.0, "reward_max": 1.0}, "reward_default"),
        ({"groups": "a=mTS"}, "is not a group"),
        ({"groups": "a=mTS:0.7", "holdout_share": 0.5}, "sum to more than 1"),
        ({"groups": "a=mTS:0.1; a=mUCB:0.1"}, "there are two groups"),
        ({"groups": "policy=mTS:0.1"}, "there are two groups"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        EngineSettings(**settings).check()  # type: ignore[arg-type]


def test_any_number_of_groups() -> None:
    driver = Driver(ARMS, holdout_share=0.2, groups="greedy=mmGreedy:0.3; b=mTS:0.2")
    policies: dict[str, set[str]] = {}
    for i in range(200):
        decided = driver.ask(f"user {i}")
        policies.setdefault(driver.session(f"user {i}").group, set()).add(decided.policy)
    assert policies == {
        "policy": {"mmTS"}, "holdout": {"uniform"}, "greedy": {"mmGreedy"}, "b": {"mTS"},
    }  # fmt: skip
