"""Rank-1 elimination: stage lengths, counts per row, idempotent stand-ins, the best pair found."""

import math

import numpy as np
import pytest

from latentbandits import Decision
from latentbandits.testing import check_policy
from latentbandits_related.rank1 import (
    Rank1Elim,
    Rank1ElimKL,
    bernoulli_bounds,
    bernoulli_divergence,
)


@pytest.mark.parametrize("kind", [Rank1Elim, Rank1ElimKL])
def test_rank1_keeps_its_promises(kind):
    check_policy(kind(3, 2, horizon=50), 6, reward=lambda n, rng: 1.0 * (rng.random(n) < 0.5))


def test_stage_lengths_by_hand():
    policy = Rank1Elim(4, 3, horizon=1000)
    assert [policy.sweeps_until(stage) for stage in range(3)] == [28, 111, 443]
    assert Rank1ElimKL(4, 3, horizon=1000).sweeps_until(0) == math.ceil(16 * math.log(1000))


def play(policy, u, v, n_rounds, seed, watch=None):
    rng = np.random.default_rng(seed)
    belief = policy.init()
    for t in range(n_rounds):
        decision = policy.decide(belief, None, rng, propensity=t % 2 == 0)
        i, j = divmod(int(decision.action[0]), len(v))
        reward = float(rng.random() < u[i] * v[j])
        before, belief = belief, policy.update(belief, None, decision, [reward])
        if watch:
            watch(before, belief, i, j)
    return belief


@pytest.mark.parametrize("kind", [Rank1Elim, Rank1ElimKL])
def test_rows_are_played_once_per_sweep_and_survivors_shrink(kind):
    policy = kind(3, 2, horizon=20)
    plays = np.zeros(3)
    sizes = []

    def watch(before, after, i, j):
        side, line, _ = policy._plan(before)
        if side[0] == 0:
            plays[i] += 1
            assert line[0] == i
        if after.stage[0] > before.stage[0]:
            assert after.sweeps[0] == policy.sweeps_until(int(before.stage[0]))
            alive = before.row_of[0] == np.arange(3)
            assert (plays[alive] == after.sweeps[0]).all(), "counts per row are n_l"
        for stands in (after.row_of[0], after.column_of[0]):
            np.testing.assert_array_equal(stands[stands], stands)  # idempotent
        sizes.append(len(np.unique(after.row_of[0])))

    u, v = np.array([0.95, 0.1, 0.1]), np.array([0.95, 0.1])
    belief = play(policy, u, v, 1000, 1, watch)
    assert (np.diff(sizes) <= 0).all()
    assert set(belief.row_of[0].tolist()) == {0}
    assert set(belief.column_of[0].tolist()) == {0}


def test_one_column_is_successive_elimination():
    """The column is always 0: rows are played in turn until their bounds part."""
    policy = Rank1Elim(3, 1, horizon=20)
    belief = play(policy, np.array([0.95, 0.4, 0.1]), np.array([1.0]), 900, 2)
    assert set(belief.row_of[0].tolist()) == {0}


def test_a_random_column_goes_through_its_stand_in():
    policy = Rank1Elim(2, 4, horizon=100)
    belief = policy.init()._replace(column_of=np.array([[0, 0, 0, 3]]))
    actual = policy.action_probabilities(belief, None, np.random.default_rng(0)).values
    assert actual[0].tolist() == [0.75, 0, 0, 0.25, 0, 0, 0, 0]


def test_a_reward_of_another_pair_changes_nothing():
    policy = Rank1Elim(3, 2, horizon=100)
    belief = policy.init()
    after = policy.update(belief, None, Decision.logged([4]), [1.0])  # row 2; row 0 is next
    assert after.place.tolist() == [0]
    assert after.row_sums.sum() == 0


def test_kl_bounds_meet_their_level():
    p = np.array([0.0, 0.2, 0.7, 1.0])
    low, high = bernoulli_bounds(p, 0.05)
    assert low[0] == 0
    assert high[3] == 1
    for bound, inner in ((low, slice(1, 4)), (high, slice(0, 3))):
        np.testing.assert_allclose(bernoulli_divergence(p, bound)[inner], 0.05, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "reward", "words"),
    [(Rank1ElimKL, 0.5, "0 or 1"), (Rank1Elim, 1.5, r"in \[0, 1\]"), (Rank1Elim, -0.1, "in")],
)
def test_rewards_that_cannot_be_are_refused(kind, reward, words):
    policy = kind(2, 2, horizon=10)
    with pytest.raises(ValueError, match=words):
        policy.update(policy.init(), None, Decision.logged([0]), [reward])


@pytest.mark.parametrize("settings", [(0, 2, 10), (2, 0, 10), (2, 2, 2)])
def test_sizes_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        Rank1Elim(*settings)
