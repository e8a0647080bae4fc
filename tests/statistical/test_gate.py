"""The gate lets better candidates through and no broken one.

Logs of 1,500 sessions and 4 rounds by an exploring mTS (e = .1) on a rough model; seed in the
generator. Broken candidates: 60 of them here (the loop experiment makes 200). A gate at level .95
that looks once would let a candidate of equal value through in less than 2.5% of the tries; broken
candidates are far worse, so one activation fails the test.
"""

import numpy as np
import pytest

from latentbandits import GaussianArms, mTS
from latentbandits.evaluation import DecisionLog
from latentbandits.loop.gate import Side, compare_groups, judge
from latentbandits.policies import Exploring

MEANS = np.array([[0.9, 0.5, 0.4, 0.1], [0.1, 0.9, 0.4, 0.5], [0.5, 0.1, 0.9, 0.4]])
NOISE = 0.4
TRUTH = GaussianArms(MEANS, NOISE)


def play(policy, n, rounds, rng):
    state = rng.integers(len(MEANS), size=n)
    belief = policy.init(n)
    action, reward, chance = (
        np.empty((n, rounds), int),
        np.empty((n, rounds)),
        np.empty((n, rounds)),
    )
    for t in range(rounds):
        decision = policy.decide(belief, None, rng)
        action[:, t], chance[:, t] = decision.action, decision.propensity
        reward[:, t] = MEANS[state, decision.action] + NOISE * rng.standard_normal(n)
        belief = policy.update(belief, None, decision, reward[:, t])
    return DecisionLog(action, reward, np.full(n, rounds), MEANS.shape[1], chance)


def rough(rng, error):
    return GaussianArms(MEANS + error * rng.standard_normal(MEANS.shape), NOISE)


def verdict_of(current, candidate, log, **options):
    return judge(Side(mTS(current), current, log), Side(mTS(candidate), candidate, log), **options)


@pytest.mark.parametrize("broken", ["shuffled", "inverted"])
def test_broken_candidates_are_never_activated(broken):
    for i in range(30):
        rng = np.random.default_rng([11, i])
        current = rough(rng, 0.1)
        log = play(Exploring(mTS(current), 0.1), 1500, 4, rng)
        means = 1 - MEANS if broken == "inverted" else MEANS[:, rng.permutation(4)]
        candidate = GaussianArms(means, NOISE)
        if broken == "shuffled" and (means.argmax(axis=1) == MEANS.argmax(axis=1)).all():
            continue
        verdict = verdict_of(current, candidate, log)
        assert not verdict.activate, (i, verdict)


def test_clearly_better_candidates_are_activated():
    """The current model is of no use (means shuffled); the true one gains about .2 a round."""
    activated = 0
    for i in range(20):
        rng = np.random.default_rng([12, i])
        current = GaussianArms(MEANS[:, [1, 2, 3, 0]], NOISE)
        log = play(Exploring(mTS(current), 0.3), 3000, 3, rng)
        activated += verdict_of(current, TRUTH, log).activate
    assert activated >= 18


def test_a_margin_and_few_sessions_hold_a_candidate_back():
    rng = np.random.default_rng(13)
    current = GaussianArms(MEANS[:, [1, 2, 3, 0]], NOISE)
    log = play(Exploring(mTS(current), 0.3), 3000, 3, rng)
    assert verdict_of(current, TRUTH, log).activate
    assert not verdict_of(current, TRUTH, log, margin=5.0).activate
    few = verdict_of(current, TRUTH, log.take(np.arange(60)))
    assert not few.activate
    assert "too few" in few.reason


def test_an_equal_candidate_says_how_many_sessions_it_would_take():
    rng = np.random.default_rng(14)
    current, candidate = rough(rng, 0.1), rough(rng, 0.1)
    log = play(Exploring(mTS(current), 0.3), 1000, 3, rng)
    verdict = verdict_of(current, candidate, log)
    assert not verdict.activate
    assert verdict.sessions_needed is None or verdict.sessions_needed > 1000


def test_live_groups_are_compared_with_every_other():
    rng = np.random.default_rng(15)
    rewards = {
        "policy": rng.normal(1.0, 1.0, 3000),
        "holdout": rng.normal(1.3, 1.0, 800),
        "tiny": np.array([1.0]),
    }
    actual = compare_groups(rewards, "policy")
    assert set(actual) == {"holdout"}
    assert actual["holdout"].high < 0
