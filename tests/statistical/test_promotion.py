"""The loop promotes better candidates and no broken one.

Logs of 1,500 sessions and 4 rounds by an exploring mTS (e = .1) on a rough model; seed in the
generator. Broken candidates: 60 of them here (the loop experiment makes 200). A test at level .95
that looks once would let a candidate of equal value through in less than 2.5% of the tries; broken
candidates are far worse, so one activation fails the test.
"""

from dataclasses import replace

import numpy as np
import pytest
from evidence.promotion import tries
from evidence.promotion import verdict_of as verdict_of_try

from latentbandits import GaussianArms, mTS, mUCB
from latentbandits.evaluation import DecisionLog
from latentbandits.evaluation.intervals import sequence_width
from latentbandits.loop.promotion import Side, compare, judge
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


def test_the_compared_rounds_do_not_grow_with_the_log():
    """A uniform log of 2 actions: weights are 2^t for a session that agrees up to round t, else 0.

    The variance of the sum over h rounds is about 2 + 4 + ... + 2^h, of which h (h + 1) / 2 per
    root is largest at h = 5 (15 / sqrt(62) = 1.91; h = 4: 1.83, h = 6: 1.87).
    """
    rng = np.random.default_rng(16)
    one, two = (GaussianArms([[a, 1 - a]], 0.1) for a in (1.0, 0.0))

    def comparison(n):
        action = rng.integers(2, size=(n, 8))
        reward = np.where(action == 0, 1.0, 0.0) + rng.standard_normal((n, 8))
        log = DecisionLog(action, reward, np.full(n, 8), 2, np.full((n, 8), 0.5))
        return compare(*(Side(mUCB(model), model, log) for model in (one, two)))

    small, large = comparison(8_000), comparison(64_000)
    assert (small.longest, large.longest) == (6, 8)
    assert (small.clearest(1), large.clearest(1)) == (5, 5)
    assert (small.clearest(6), large.clearest(7)) == (6, 7)


def test_a_log_that_says_nothing_activates_no_one():
    """Rewards that depend on no action: at most 2.5% pass, more than 2 of 20 with chance < 2%."""
    passed = 0
    for i in range(20):
        rng = np.random.default_rng([18, i])
        current = GaussianArms(MEANS[:, [1, 2, 3, 0]], NOISE)
        log = play(Exploring(mTS(current), 0.3), 750, 6, rng)
        noise = replace(log, reward=0.5 + NOISE * rng.standard_normal(log.reward.shape))
        passed += verdict_of(current, TRUTH, noise).activate
    assert passed <= 2


def test_a_candidate_that_is_worse_later_is_kept_out():
    """It is better in rounds 1 to 5, which are compared, and worse in the three after them."""
    rng = np.random.default_rng(17)
    n, gain = 40_000, np.array([0.3] * 5 + [-2.0] * 3)
    action = rng.integers(2, size=(n, 8))
    reward = np.where(action == 1, gain, 0.0) + 0.1 * rng.standard_normal((n, 8))
    log = DecisionLog(action, reward, np.full(n, 8), 2, np.full((n, 8), 0.5))
    zero, one = (GaussianArms([[a, 1 - a]], 0.1) for a in (1.0, 0.0))
    sides = [Side(mUCB(model), model, log) for model in (zero, one)]
    verdict = judge(*sides)
    assert verdict.low > 0
    assert not verdict.activate
    assert "better in rounds 1-5, but in a whole session of 8 rounds" in verdict.reason


def test_a_candidate_with_its_states_relabelled_is_identical():
    """The difference is rounding, of either sign: 0 of 30 may be activated."""
    for i in range(30):
        rng = np.random.default_rng([19, i])
        current = rough(rng, 0.1)
        log = play(Exploring(mTS(current), 0.3), 600, 3, rng)
        relabelled = GaussianArms(current.means[[2, 0, 1]], NOISE)
        verdict = verdict_of(current, relabelled, log)
        assert verdict.identical, verdict
        assert not verdict.activate
        assert "identical" in verdict.reason
        assert not verdict_of(current, relabelled, log, margin=-1.0).activate


def test_later_candidates_have_a_higher_level_and_all_the_same_tuning():
    rng = np.random.default_rng(20)
    current, candidate = rough(rng, 0.1), rough(rng, 0.1)
    log = play(Exploring(mTS(current), 0.3), 1000, 3, rng)
    first, third = (verdict_of(current, candidate, log, number=k) for k in (1, 3))
    assert (first.level, third.level) == pytest.approx((1 - 0.05 / 2, 1 - 0.05 / 12))
    assert third.high - third.low > first.high - first.low
    n, half = 1000, (first.high - first.low) / 2
    expected = first.stderr * np.sqrt(n) * sequence_width(n, 0.975, 5_000)
    assert half == pytest.approx(expected)
    assert (first.tightest_at, third.tightest_at) == (5_000, 5_000)


def test_candidates_that_are_worse_over_a_session_are_kept_out():
    """At most 2.5% may pass; `python -m evidence gate` tries 200 of them. One of 12 fails the test.

    Half of the models in use explore so little that only their last rounds are weighted.
    """
    kept = [
        verdict_of_try(one)
        for one in tries(("first", "rough"), 12, 900, worse=True, true_sessions=2000)
    ]
    assert not any(verdict.activate for verdict in kept)
    assert any("by the weights of their last" in verdict.reason for verdict in kept)
    assert any("not better" in verdict.reason for verdict in kept)


def test_candidates_that_gain_in_later_rounds_are_seen():
    """Both models agree in round 1: a comparison of this round alone would never see the gain."""
    better = list(tries(("later",), 8, 911, worse=False, true_sessions=2000))
    verdicts = [verdict_of_try(one) for one in better]
    assert sum(verdict.activate for verdict in verdicts) >= 2
    assert all(verdict.horizon > 1 for verdict in verdicts)


def test_one_round_of_eight_is_no_session():
    """Better in round 1, worse in the seven others; two policies without any chance, little
    exploration: round 1 alone can be compared, and there the candidate is clearly better.
    """
    rng = np.random.default_rng(21)
    first, later = GaussianArms([[0.0, 1.0]], 0.1), GaussianArms([[1.0, 0.0]], 0.1)
    action = (rng.random((6000, 8)) < 0.03).astype(int)
    chance = np.where(action == 1, 0.03, 0.97)
    gain = np.array([0.5] + [-0.2] * 7)
    reward = np.where(action == 1, gain, 0.0) + 0.1 * rng.standard_normal((6000, 8))
    log = DecisionLog(action, reward, np.full(6000, 8), 2, chance)
    sides = [Side(Exploring(mUCB(m), 0.06), m, log) for m in (later, first)]
    verdict = judge(*sides)
    assert not verdict.activate
    assert "no decision: only 1 of 8 rounds" in verdict.reason
    assert verdict.low > 0  # of round 1
