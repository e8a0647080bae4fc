"""Information-directed sampling: the mixture is the best there is, for any regrets."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentbandits import BernoulliArms, GaussianArms, mmIDS
from latentbandits.beliefs import information
from latentbandits.beliefs.information import (
    best_actions,
    minimal_ratio_mixture,
    regret_and_information,
)
from tests.reference.information import all_pairs, regret_and_information_by_action

REGRETS = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))
INFORMATION = st.one_of(st.just(0.0), st.floats(1e-9, 1e3))
ACTIONS = st.lists(st.tuples(REGRETS, INFORMATION, st.booleans()), min_size=1, max_size=6)
GRID = np.linspace(0, 1, 101)


def solve(actions):
    """Regrets, information and eligibility of the actions, and the mixture; one is eligible."""
    regret, information, eligible = (np.array(column) for column in zip(*actions, strict=True))
    eligible = eligible | ~eligible.any()
    mixture = minimal_ratio_mixture(regret[None], information[None], eligible[None])[0]
    return regret, information, eligible, mixture


def ratio(regret, information, mixture):
    cost, gain = mixture @ regret, mixture @ information
    if cost == 0:
        return 0.0
    return cost**2 / gain if gain > 0 else np.inf


@given(ACTIONS)
def test_no_mixture_of_two_has_a_smaller_ratio(actions):
    regret, information, eligible, mixture = solve(actions)
    actual = ratio(regret, information, mixture)
    places = np.flatnonzero(eligible)
    for a in places:
        for b in places:
            for q in GRID:
                other = q * np.eye(len(regret))[a] + (1 - q) * np.eye(len(regret))[b]
                assert actual <= ratio(regret, information, other) * (1 + 1e-6) + 1e-12


@given(ACTIONS)
def test_it_is_a_distribution_over_eligible_actions(actions):
    _, _, eligible, mixture = solve(actions)
    assert (mixture >= 0).all()
    assert (mixture[~eligible] == 0).all()
    np.testing.assert_allclose(mixture.sum(), 1)


@given(ACTIONS, st.randoms(use_true_random=False))
def test_no_action_is_favoured_by_its_place(actions, random):
    order = list(range(len(actions)))
    random.shuffle(order)
    shuffled = solve([actions[i] for i in order])[-1]
    np.testing.assert_allclose(shuffled, solve(actions)[-1][order], atol=1e-6)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_regret_and_information_by_their_definitions(n_actions, m, seed):
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 3, (m, n_actions)) / 2  # few values, so that actions tie
    weights = rng.dirichlet(np.ones(m))
    best = rewards == rewards.max(axis=1, keepdims=True)
    regret, information = regret_and_information(
        rewards[None], weights[None], best_actions(rewards[None], None)
    )
    share = weights[:, None] * best / best.sum(axis=1, keepdims=True)
    mean = weights @ rewards
    np.testing.assert_allclose(regret[0], weights @ rewards.max(axis=1) - mean, atol=1e-12)
    expected = np.zeros(n_actions)
    for a in range(n_actions):
        if share[:, a].sum() > 0:
            given_best = share[:, a] @ rewards / share[:, a].sum()
            expected += share[:, a].sum() * (given_best - mean) ** 2
    np.testing.assert_allclose(information[0], expected, atol=1e-12)


SCENARIOS = st.tuples(
    st.integers(1, 4), st.integers(1, 30), st.integers(1, 60), st.integers(0, 2**32 - 1)
)


def draw_scenarios(n, m, n_actions, seed):
    """Rewards with and without ties, on several scales, and a mask of eligible actions."""
    rng = np.random.default_rng(seed)
    rewards = rng.standard_normal((n, m, n_actions))
    kind = rng.integers(6)
    if kind == 1:
        rewards = rng.integers(0, 3, rewards.shape) / 2
    elif kind == 2:
        rewards[:, :, : n_actions // 2] = rewards[:, :, :1]
    elif kind == 3:
        rewards *= 1e-60
    elif kind == 4:
        rewards = 1e8 * rewards + 1e9
    elif kind == 5:
        rewards = rewards[:1]
    eligible = rng.random((n, n_actions)) < 0.6
    eligible[:, rng.integers(n_actions)] = True
    eligible |= kind % 2 == 0
    masked = np.where(eligible[:, None], rewards, -np.inf)
    best = masked == masked.max(axis=2, keepdims=True)
    return rewards, rng.dirichlet(np.ones(m), n), best, eligible


@settings(deadline=None, max_examples=300)
@given(SCENARIOS)
def test_many_actions_have_the_mixture_of_all_pairs(problem):
    """Groups of scenarios and the support line give what all actions and all pairs give."""
    rewards, weights, best, eligible = draw_scenarios(*problem)
    regret, gain = regret_and_information(rewards, weights, best_actions(rewards, eligible))
    slow_regret, slow_gain = regret_and_information_by_action(rewards, weights, best)
    scale = np.abs(rewards).max()
    np.testing.assert_allclose(regret, slow_regret, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(gain, slow_gain, rtol=0, atol=1e-12 * scale**2)
    expected = all_pairs(slow_regret, slow_gain, eligible)
    few = information.FEW_ACTIONS
    try:
        information.FEW_ACTIONS = 1  # the search is used for any number of actions
        actual = minimal_ratio_mixture(slow_regret, slow_gain, eligible)
    finally:
        information.FEW_ACTIONS = few
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


def test_thousands_of_tied_actions_share_equally():
    """9,998 copies of two actions and two that tell most: pairs tie, memory stays small."""
    regret, gain = np.full((1, 10_000), 0.2), np.full((1, 10_000), 0.01)
    regret[0, 5_000:], gain[0, 5_000:] = 0.3, 0.5
    mixture = minimal_ratio_mixture(regret, gain, None)[0]
    small = minimal_ratio_mixture(regret[:, [0, -1]], gain[:, [0, -1]], None)[0]
    np.testing.assert_allclose(mixture[:5_000], small[0] / 5_000, rtol=1e-12)
    np.testing.assert_allclose(mixture[5_000:], small[1] / 5_000, rtol=1e-12)


def test_ten_thousand_equal_actions_are_played_equally():
    rewards = np.zeros((1, 100, 10_000))
    best = best_actions(rewards, None)
    regret, gain = regret_and_information(rewards, np.full((1, 100), 0.01), best)
    np.testing.assert_allclose(minimal_ratio_mixture(regret, gain, None), 1e-4)


def test_inverse_weights_of_mmids_are_unbiased():
    """The mean of 1{A = a} / propensity is 1 for every action with a positive probability.

    20,000 decisions; five standard errors: a false alarm has probability below 1e-5. Propensities
    given fresh draws (a planted bug) have a mean below 0.9 for some action.
    """
    rng = np.random.default_rng(3)
    models = (
        GaussianArms(rng.random((3, 6)), 0.5, 0.3),
        BernoulliArms.from_means(0.4 + 0.2 * rng.random((3, 6)), 0.2),
    )
    for model in models:
        policy = mmIDS(model, draws=8)
        belief = policy.init()
        chance = policy.action_probabilities(belief, None, rng).values[0]
        many = 20_000 if isinstance(model, GaussianArms) else 2_000
        decision = policy.decide(policy.init(many), None, rng)
        for action in np.flatnonzero(chance):
            weights = (decision.action == action) / decision.propensity
            assert abs(weights.mean() - 1) <= 5 * weights.std() / many**0.5
        assert np.isin(decision.action, np.flatnonzero(chance)).all()
        planted = []
        for seed in range(200):
            other = mmIDS(model, draws=8, seed=seed).decide(belief, None, rng)
            planted.append((other.action[0], other.propensity[0]))
        actions, chances = map(np.array, zip(*planted, strict=True))
        means = [((actions == a) / chances).mean() for a in np.unique(actions)]
        assert min(means) < 0.9
