"""Information-directed sampling: the mixture is the best there is, for any regrets."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latentbandits.beliefs.information import minimal_ratio_mixture, regret_and_information

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


@settings(deadline=None)
@given(ACTIONS)
def test_no_mixture_of_two_has_a_smaller_ratio(actions):
    regret, information, eligible, mixture = solve(actions)
    found = ratio(regret, information, mixture)
    places = np.flatnonzero(eligible)
    for a in places:
        for b in places:
            for q in GRID:
                other = q * np.eye(len(regret))[a] + (1 - q) * np.eye(len(regret))[b]
                assert found <= ratio(regret, information, other) * (1 + 1e-6) + 1e-12


@settings(deadline=None)
@given(ACTIONS)
def test_it_is_a_distribution_over_eligible_actions(actions):
    _, _, eligible, mixture = solve(actions)
    assert (mixture >= 0).all()
    assert (mixture[~eligible] == 0).all()
    np.testing.assert_allclose(mixture.sum(), 1)


@settings(deadline=None)
@given(ACTIONS, st.randoms(use_true_random=False))
def test_no_action_is_favoured_by_its_place(actions, random):
    order = list(range(len(actions)))
    random.shuffle(order)
    shuffled = solve([actions[i] for i in order])[-1]
    np.testing.assert_allclose(shuffled, solve(actions)[-1][order], atol=1e-6)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_regret_and_information_by_their_definitions(n_actions, m, seed):
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 3, (m, n_actions)) / 2  # few values, so that actions tie
    weights = rng.dirichlet(np.ones(m))
    best = rewards == rewards.max(axis=1, keepdims=True)
    regret, information = regret_and_information(rewards[None], weights[None], best[None])
    share = weights[:, None] * best / best.sum(axis=1, keepdims=True)
    mean = weights @ rewards
    np.testing.assert_allclose(regret[0], weights @ rewards.max(axis=1) - mean, atol=1e-12)
    expected = np.zeros(n_actions)
    for a in range(n_actions):
        if share[:, a].sum() > 0:
            given_best = share[:, a] @ rewards / share[:, a].sum()
            expected += share[:, a].sum() * (given_best - mean) ** 2
    np.testing.assert_allclose(information[0], expected, atol=1e-12)
