"""Structured bandits, policy reuse and latent orders: hand-computed cases, limits, conformance."""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from latentbandits import BernoulliArms, Decision, GaussianArms, LinearGaussian, mTS
from latentbandits.models.arms.gaussian import ArmStatistics
from latentbandits.testing import check_policy
from latentbandits_related.latent_order import LatentOrderTS, order_distance
from latentbandits_related.policy_reuse import PolicyReuse, look_ahead, posteriors
from latentbandits_related.structured import TSC, UCBC, UCBS, SingleKUCB

RNG = np.random.default_rng(21)
ARMS = GaussianArms(RNG.random((3, 4)), 0.5, 0.2, [0.2, 0.3, 0.5])
LINEAR = LinearGaussian(RNG.normal(size=(3, 2)), 0.5)
STRUCTURED = (SingleKUCB, UCBS, UCBC, TSC)
CASES = {
    **{policy.__name__: policy(ARMS) for policy in (*STRUCTURED, LatentOrderTS)},
    "UCBC all first": UCBC(ARMS, every_action_first=True),
    "TSC all first": TSC(ARMS, alpha=1.0, every_action_first=True),
    **{f"PolicyReuse {rule}": PolicyReuse(ARMS, rule=rule) for rule in ("PI", "EI", "BE", "KG")},
    "PolicyReuse KG horizon": PolicyReuse(ARMS, rule="KG", horizon=30),
    "PolicyReuse probability": PolicyReuse(ARMS, rule="EI", improvement="probability"),
}


@pytest.mark.parametrize("name", CASES)
def test_policies_keep_their_promises(name):
    check_policy(CASES[name], 4)


@pytest.mark.parametrize("rule", ["PI", "EI", "BE", "KG"])
def test_policy_reuse_takes_features_and_clicks(rule):
    check_policy(
        PolicyReuse(LINEAR, rule=rule), 4, context=lambda n, rng: rng.normal(size=(n, 4, 2))
    )
    clicks = BernoulliArms(1 + 5 * RNG.random((3, 4)), 3.0)
    check_policy(
        PolicyReuse(clicks, rule=rule), 4, reward=lambda n, rng: 1.0 * (rng.random(n) < 0.5)
    )


def statistics(counts, means):
    counts = np.array([counts], float)
    return ArmStatistics(counts, counts * np.array([means], float))


def test_allowed_states_by_hand():
    """T = 6, sigma 0.5, alpha 3: the width is 0.5 sqrt(6 ln 6 / 5) = 0.7332 for five plays."""
    for offset, allowed in ((0.73, True), (0.74, False)):
        model = GaussianArms([[0.5, 0.1], [0.5 + offset, 0.2]], 0.5)
        belief = statistics([5, 0], [0.5, 0.0])
        assert UCBS(model)._allowed(belief).tolist() == [[True, allowed]]


def play(policy, truth, n_rounds, seed):
    rng = np.random.default_rng(seed)
    belief, actions = policy.init(), []
    for _ in range(n_rounds):
        decision = policy.decide(belief, None, rng)
        reward = truth[decision.action[0]] + 0.1 * rng.standard_normal()
        belief = policy.update(belief, None, decision, [reward])
        actions.append(int(decision.action[0]))
    return actions, belief


@pytest.mark.parametrize("policy", STRUCTURED)
def test_one_state_plays_its_best_action_for_ever(policy):
    model = GaussianArms([[0.2, 0.9, 0.5]], 0.1)
    assert play(policy(model), [0.2, 0.9, 0.5], 30, 1)[0] == [1] * 30


@pytest.mark.parametrize("policy", [UCBC, TSC])
def test_states_with_a_common_best_action_compare_nothing_else(policy):
    model = GaussianArms([[0.2, 0.9, 0.5], [0.1, 0.7, 0.6]], 0.1)
    assert play(policy(model), [0.2, 0.9, 0.5], 30, 2)[0] == [1] * 30


@pytest.mark.parametrize("policy", STRUCTURED)
def test_states_far_apart_leave_the_true_one(policy):
    model = GaussianArms([[9.0, 0.0], [0.0, 9.0], [4.0, 6.0]], 0.1)
    _, belief = play(policy(model), [4.0, 6.0], 30, 3)
    assert policy(model).state_probabilities(belief).tolist() == [[0.0, 0.0, 1.0]]


def test_single_k_ucb_is_ucb_s_while_a_state_is_allowed():
    rng = np.random.default_rng(4)
    n_same = 0
    for _ in range(300):
        belief = statistics(rng.integers(0, 5, size=4), rng.normal(0.5, 0.5, size=4))
        if UCBS(ARMS)._allowed(belief).any():
            one, other = (
                p(ARMS).action_probabilities(belief, None, rng).values for p in (SingleKUCB, UCBS)
            )
            np.testing.assert_array_equal(one, other)
            n_same += 1
    assert n_same > 50


def test_a_wrong_model_leaves_the_least_violated_class_or_any_action():
    model = GaussianArms([[5.0, 1.0], [9.0, 2.0]], 0.1)
    belief = statistics([20, 20], [0.0, 0.0])
    rng = np.random.default_rng(5)
    assert SingleKUCB(model).decide(belief, None, rng).state.tolist() == [0]
    assert UCBS(model).action_probabilities(belief, None, rng).values.tolist() == [[0.5, 0.5]]
    assert TSC(model)._competitive(belief, None).all()


def test_tsc_draws_as_often_as_its_quadrature_says():
    """20,000 draws: within 5 standard errors; a beta twice as large is found out."""
    policy = TSC(GaussianArms([[0.6, 0.5], [0.5, 0.6]], 0.5))
    belief = statistics([4, 9], [0.5, 0.4])
    many = ArmStatistics(*(np.tile(leaf, (20_000, 1)) for leaf in belief))
    actual = policy.action_probabilities(belief, None, RNG).values[0, 0]
    for beta, right in ((1.0, True), (2.0, False)):
        drawn = TSC(policy.model, beta=beta).decide(many, None, np.random.default_rng(6)).action
        error = abs((drawn == 0).mean() - actual) / np.sqrt(actual * (1 - actual) / 20_000)
        assert (error < 5) == right


def test_policy_reuse_without_curiosity_is_greedy_over_best_actions():
    rng = np.random.default_rng(7)
    for rule in ("BE", "KG"):
        policy = PolicyReuse(ARMS, rule=rule, kappa=0.0)
        for _ in range(50):
            belief = policy.init()._replace(log_weights=3 * rng.normal(size=(1, 3)))
            weights = policy.state_probabilities(belief)[0]
            means = ARMS.means
            worth = weights @ means
            candidates = np.unique(means.argmax(axis=1))
            action = policy.decide(belief, None, rng).action[0]
            assert action == candidates[worth[candidates].argmax()]


def test_lookahead_is_a_martingale_and_information_is_not_negative():
    rng = np.random.default_rng(8)
    weights = rng.dirichlet(np.ones(4), size=20)
    means = rng.random((20, 4, 3))
    means[:, :, 2] = 0.5  # tells nothing
    chance, after = posteriors(weights, means, 0.5)
    np.testing.assert_allclose(chance.sum(axis=2), 1, atol=1e-12)
    expected = (chance[..., None] * after).sum(axis=2)
    np.testing.assert_allclose(expected, np.repeat(weights[:, None], 3, axis=1), atol=1e-4)
    actual = look_ahead(weights, means, means, 0.5)
    entropy = -(weights * np.log(weights)).sum(axis=1, keepdims=True)
    information = entropy - actual.entropy
    assert (information > -1e-5).all()
    np.testing.assert_allclose(information[:, 2], 0, atol=1e-12)
    assert (actual.best >= (weights[:, None] @ means)[:, 0].max(axis=1)[:, None] - 1e-5).all()


def test_lookahead_against_a_fine_grid():
    """Two states by brute force: the reward's predictive density on 40,001 points."""
    weights, noise = np.array([0.3, 0.7]), 0.5
    means = np.array([[0.9, 0.2], [0.1, 0.6]])
    grid = np.linspace(-5, 6, 40_001)
    for j in range(2):
        joint = weights[:, None] * np.exp(-0.5 * ((grid - means[:, j, None]) / noise) ** 2)
        joint /= noise * np.sqrt(2 * np.pi)
        density = joint.sum(axis=0)
        posterior = joint / density
        best = np.trapezoid(density * (posterior.T @ means).max(axis=1), grid)
        entropy = np.trapezoid(density * -(posterior * np.log(posterior)).sum(axis=0), grid)
        actual = look_ahead(weights[None], means[None], means[None], noise)
        assert actual.entropy[0, j] == pytest.approx(entropy, abs=2e-4)
        assert actual.best[0, j] == pytest.approx(best, abs=4e-3)  # a kink between nodes
        fine = look_ahead(weights[None], means[None], means[None], noise, n_nodes=101)
        assert fine.entropy[0, j] == pytest.approx(entropy, abs=1e-9)
        assert fine.best[0, j] == pytest.approx(best, abs=6e-4)


def test_improvement_by_hand():
    """One state that is certain: U - U_bar = 0, so P = 1/2 and E = sigma phi(0) = 0.1995."""
    model = GaussianArms([[0.7, 0.1]], 0.5)
    policy = PolicyReuse(model, rule="PI")
    _, utility = policy._library(None, None)
    assert policy._scores(policy.init(), utility) == pytest.approx(0.5)
    expected = PolicyReuse(model, rule="EI")
    assert expected._scores(policy.init(), utility)[0, 0] == pytest.approx(0.5 * 0.39894228)
    printed = PolicyReuse(model, rule="EI", improvement="probability")
    assert printed._scores(policy.init(), utility) == pytest.approx(0.5)


def test_policy_reuse_learns_as_mts():
    rng = np.random.default_rng(9)
    reuse, thompson = PolicyReuse(ARMS), mTS(ARMS)
    one, other = reuse.init(), thompson.init()
    for _ in range(10):
        decision = Decision.logged(rng.integers(4, size=1))
        reward = rng.normal(size=1)
        one, other = (
            reuse.update(one, None, decision, reward),
            thompson.update(other, None, decision, reward),
        )
    np.testing.assert_array_equal(one.log_weights, other.log_weights)


def test_order_distance_is_isotonic_regression():
    rng = np.random.default_rng(10)
    for _ in range(200):
        k = int(rng.integers(1, 8))
        means, counts = rng.normal(size=k), rng.integers(0, 4, size=k).astype(float)
        seen = counts > 0
        expected = 0.0
        if seen.any():
            fitted = isotonic_regression(means[seen], weights=counts[seen]).x
            expected = float((counts[seen] * (fitted - means[seen]) ** 2).sum())
        assert order_distance(counts, means) == pytest.approx(expected, abs=1e-10)


def test_order_distance_is_zero_in_order_and_scales():
    means, counts = np.array([0.1, 0.4, 0.9]), np.array([2.0, 3.0, 1.0])
    assert order_distance(counts, means) < 1e-30
    swapped = means[::-1]
    assert order_distance(counts, 3 * swapped + 7) == pytest.approx(
        9 * order_distance(counts, swapped)
    )


def test_latent_order_ignores_level_and_scale():
    """Rewards a r + b with noise a sigma give the same belief."""
    rng = np.random.default_rng(11)
    means = rng.random((3, 4))
    one, other = LatentOrderTS(GaussianArms(means, 0.5)), LatentOrderTS(GaussianArms(means, 1.5))
    first, second = one.init(), other.init()
    for _ in range(20):
        decision, reward = Decision.logged(rng.integers(4, size=1)), rng.normal(size=1)
        first = one.update(first, None, decision, reward)
        second = other.update(second, None, decision, 3 * reward - 8)
    np.testing.assert_allclose(
        one.state_probabilities(first), other.state_probabilities(second), atol=1e-9
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: UCBS(ARMS, alpha=0.0), "alpha must be"),
        (lambda: TSC(ARMS, beta=-1.0), "beta must be"),
        (lambda: SingleKUCB(LINEAR), "fixed list of actions"),
        (lambda: LatentOrderTS(LINEAR), "fixed list of actions"),
        (lambda: PolicyReuse(ARMS, rule="UCB"), "rule must be"),
        (lambda: PolicyReuse(ARMS, kappa=-1.0), "kappa must be"),
        (lambda: PolicyReuse(ARMS, improvement="mean"), "improvement must be"),
        (lambda: PolicyReuse(ARMS, horizon=0), "horizon must be"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
