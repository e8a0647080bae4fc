"""Beliefs against enumeration, against one big multivariate normal, and at the edge of floats."""

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.beliefs import joint
from latentbandits.policies.latent import ucb
from tests.reference.enumeration import joint_on_grid
from tests.reference.gaussian import arms_posterior, linear_posterior, state_posterior


def test_state_posterior_by_hand():
    # Two states, one reward of 0.9, noise 0.5: the densities of 0.9 under means 0.9 and 0.4 are as
    # 1 to exp(-0.5), so P(s=0) = 1 / (1 + exp(-0.5)).
    model = GaussianArms([[0.9], [0.4]], noise=0.5)
    belief = joint.condition_known(
        model, joint.known_prior(model, 1), None, np.array([0]), np.array([0.9])
    )
    actual = joint.probabilities(belief.log_weights)[0, 0]
    assert actual == pytest.approx(1 / (1 + np.exp(-0.5)))


def test_joint_posterior_against_enumeration():
    means, spread, noise, prior = [[0.2, 0.7], [0.6, 0.1], [0.4, 0.4]], 0.3, 0.5, [0.2, 0.5, 0.3]
    actions, rewards = [0, 1, 1, 0, 1], [0.9, -0.2, 0.5, 0.7, 0.1]
    model = GaussianArms(means, noise, spread, prior)
    belief = joint.prior(model, 1)
    for t in range(len(actions) + 1):
        expected, mean, variance = joint_on_grid(
            means, spread, noise, prior, actions[:t], rewards[:t]
        )
        np.testing.assert_allclose(joint.probabilities(belief.log_weights)[0], expected, atol=1e-7)
        found_mean, found_variance = model.posterior_rewards(belief.parameters, None)
        np.testing.assert_allclose(found_mean[0], mean, atol=1e-7)
        np.testing.assert_allclose(found_variance[0], variance, atol=1e-7)
        if t < len(actions):
            one = np.array(actions[t : t + 1]), np.array(rewards[t : t + 1])
            belief = joint.condition(model, belief, None, *one)


def test_arms_against_one_big_normal():
    rng = np.random.default_rng(5)
    means, spread = rng.random((4, 3)), rng.random((4, 3))
    model = GaussianArms(means, 0.4, spread, [0.1, 0.2, 0.3, 0.4])
    actions, rewards = rng.integers(3, size=20), rng.normal(size=20)
    belief = joint.prior(model, 1)
    for action, reward in zip(actions, rewards, strict=True):
        belief = joint.condition(model, belief, None, np.array([action]), np.array([reward]))
    oracle = [arms_posterior(means[s], spread[s], 0.4, actions, rewards) for s in range(4)]
    expected = np.log([0.1, 0.2, 0.3, 0.4]) + [evidence for evidence, _, _ in oracle]
    np.testing.assert_allclose(belief.log_weights[0], expected, rtol=1e-10)
    mean, variance = model.posterior_rewards(belief.parameters, None)
    for s, (_, oracle_mean, oracle_covariance) in enumerate(oracle):
        np.testing.assert_allclose(mean[0, s], oracle_mean, atol=1e-10)
        np.testing.assert_allclose(variance[0, s], np.diag(oracle_covariance), atol=1e-10)


@pytest.mark.parametrize("singular", [False, True])
def test_linear_against_one_big_normal(singular):
    rng = np.random.default_rng(6)
    d, n_states, n_rounds = 4, 3, 25
    weights, roots = rng.normal(size=(n_states, d)), rng.normal(size=(n_states, d, d))
    if singular:
        roots[:, :, -2:] = 0
    covariances = roots @ roots.swapaxes(1, 2)
    model = LinearGaussian(weights, 0.3, covariances)
    belief, x, rewards = joint.prior(model, 1), [], []
    for _ in range(n_rounds):
        context, action, reward = rng.normal(size=(1, 5, d)), rng.integers(5, size=1), rng.normal()
        belief = joint.condition(model, belief, context, action, np.array([reward]))
        x.append(context[0, action[0]])
        rewards.append(reward)
    oracle = [
        linear_posterior(weights[s], covariances[s], 0.3, x, rewards) for s in range(n_states)
    ]
    evidences = [evidence for evidence, _, _ in oracle]
    np.testing.assert_allclose(belief.log_weights[0], evidences - np.log(n_states), rtol=1e-8)
    np.testing.assert_allclose(
        joint.probabilities(belief.log_weights)[0],
        state_posterior(np.zeros(n_states), evidences),
        atol=1e-9,
    )
    for s, (_, mean, covariance) in enumerate(oracle):
        np.testing.assert_allclose(belief.parameters.mean[0, s], mean, atol=1e-8)
        np.testing.assert_allclose(belief.parameters.covariance[0, s], covariance, atol=1e-8)


def test_evidence_is_free_of_the_order_but_parameters_share_their_theta():
    """The running predictive, not the product of prior predictives (erratum E2)."""
    model = GaussianArms([[0.0]], noise=1.0, spread=1.0)
    belief = joint.prior(model, 1)
    for reward in (1.0, 1.0):
        belief = joint.condition(model, belief, None, np.array([0]), np.array([reward]))
    # Rewards are N(0, [[2, 1], [1, 2]]): log density at (1, 1) is -log(2 pi) - log(3)/2 - 1/3.
    expected = -np.log(2 * np.pi) - np.log(3) / 2 - 1 / 3
    assert belief.log_weights[0, 0] == pytest.approx(expected)


def test_states_survive_extreme_likelihoods():
    model = GaussianArms([[0.0], [1e-3]], noise=0.5, spread=0.0)
    belief = joint.condition_known(
        model, joint.known_prior(model, 1), None, np.array([0]), np.array([1e3])
    )
    assert belief.log_weights.max() < -1e6
    actual = joint.probabilities(belief.log_weights)[0]
    # The difference of two numbers near -2e6 is exact to about 1e-9: (r - m)^2 / (2 noise^2).
    expected = 1 / (1 + np.exp(-(1e3**2 - (1e3 - 1e-3) ** 2) / 0.5))
    assert actual[1] == pytest.approx(expected, abs=1e-8)
    assert actual.sum() == pytest.approx(1)


@pytest.mark.parametrize("kind", ["arms", "linear"])
def test_a_hundred_thousand_rounds(kind):
    rng = np.random.default_rng(7)
    truth = np.array([0.3, -0.2, 0.5])
    if kind == "arms":
        model = GaussianArms(truth + rng.normal(size=(2, 3)), 0.5, 1.0)
    else:
        model = LinearGaussian(truth + rng.normal(size=(2, 3)), 0.5, np.stack([np.eye(3)] * 2))
    contexts = np.broadcast_to(np.eye(3), (1, 3, 3)) if kind == "linear" else None
    belief = joint.prior(model, 1)
    n = 100_000
    actions, noise = rng.integers(3, size=n), 0.5 * rng.standard_normal(n)
    rewards = truth[actions] + noise
    for t in range(n):
        one = slice(t, t + 1)
        belief = joint.condition(model, belief, contexts, actions[one], rewards[one])
    assert np.isfinite(belief.log_weights).all()
    np.testing.assert_allclose(joint.probabilities(belief.log_weights).sum(), 1)
    mean, variance = model.posterior_rewards(belief.parameters, contexts)
    counts = np.bincount(actions)
    sums = np.bincount(actions, rewards)
    prior_mean = model.expected_rewards(contexts)[0]
    precision = 1 + counts / 0.25
    np.testing.assert_allclose(variance[0], np.broadcast_to(1 / precision, (2, 3)), rtol=1e-6)
    np.testing.assert_allclose(mean[0], (prior_mean + sums / 0.25) / precision, atol=1e-8)
    if kind == "linear":
        assert (np.linalg.eigvalsh(belief.parameters.covariance) > 0).all()


def test_covariance_stays_positive_where_the_plain_update_does_not():
    """Noise far below the prior: the textbook difference cov - cov x x' cov / v goes negative."""
    rng = np.random.default_rng(8)
    d, noise, prior = 6, 1e-6, 1e6
    x = rng.normal(size=(40, d))
    plain = prior**2 * np.eye(d)
    model = LinearGaussian(np.zeros((1, d)), noise, [plain])
    parameters = model.parameters(1)
    lowest = np.inf
    for row in x:
        direction = plain @ row
        plain = plain - np.outer(direction, direction) / (row @ direction + noise**2)
        _, parameters = model.condition(parameters, row[None, None], np.array([0]), np.array([0.0]))
        lowest = min(lowest, np.linalg.eigvalsh(plain).min())
        seen = model.posterior_rewards(parameters, x[None])[1]
        assert (seen >= 0).all()
    assert lowest < 0
    variances = np.einsum("kd,de,ke->k", x, parameters.covariance[0, 0], x)
    assert (variances >= 0).all()
    np.testing.assert_array_less(variances, 10 * noise**2)


def test_an_empty_consistent_set_is_the_smallest_average_gap():
    belief = ucb.GapBelief(np.array([[4.0, 4.0, 1.0]]), np.array([[40.0, 20.0, 9.0]]))
    np.testing.assert_array_equal(
        ucb.consistent_states(belief, noise=0.1, horizon=500), [[False, True, False]]
    )


def test_an_unknown_horizon_is_the_round():
    # N = (3, 1): t = 5. With log 5 = 1.609 the bound of state 0 is 0.5 sqrt(18 * 1.609) = 2.69,
    # with log 500 = 6.215 it is 5.29.
    belief = ucb.GapBelief(np.array([[3.0, 1.0]]), np.array([[3.0, 0.0]]))
    np.testing.assert_array_equal(ucb.consistent_states(belief, 0.5, None), [[False, True]])
    np.testing.assert_array_equal(ucb.consistent_states(belief, 0.5, 500), [[True, True]])


def test_systematic_draws_are_within_one_of_their_share():
    log_weights = np.log(np.array([[0.5, 0.3, 0.2], [0.01, 0.98, 0.01]]))
    actual = joint.sample_many(log_weights, 10, np.random.default_rng(0))
    for row, weights in zip(actual, np.exp(log_weights), strict=True):
        assert (np.abs(np.bincount(row, minlength=3) - 10 * weights) <= 1 + 1e-9).all()


def test_a_state_of_prior_probability_zero_is_never_believed():
    model = GaussianArms([[0.9], [0.1]], 0.5, state_prior=[0.0, 1.0])
    belief = joint.known_prior(model, 1000)
    assert (joint.sample(belief.log_weights, np.random.default_rng(0)) == 1).all()


def test_many_states_are_drawn_whatever_the_rounding_of_their_sum():
    # Sums of shares in float64 can end a little above or below one, and the offset can be zero.
    class Zero:
        def random(self, shape):
            return np.zeros(shape)

    log_weights = np.log(np.random.default_rng(0).random((2000, 7)))
    log_weights[:, -1] = -800.0
    actual = joint.sample_many(log_weights, 50, Zero())
    assert actual.shape == (2000, 50)
    assert actual.max() < 7
    assert (np.diff(actual, axis=1) >= 0).all()
