"""Models: numbers by hand, frozen arrays, and what is refused."""

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.testing import check_model


def test_posterior_of_one_arm_by_hand():
    # Prior N(0.2, 0.5^2), noise 1: after one reward of 1.2 the precision is 4 + 1 = 5, the mean
    # (4 * 0.2 + 1.2) / 5 = 0.4 and the predictive variance was 0.25 + 1 = 1.25.
    model = GaussianArms([[0.2]], noise=1.0, spread=0.5)
    log_predictive, after = model.condition(
        model.parameters(1), None, np.array([0]), np.array([1.2])
    )
    mean, variance = model.posterior_rewards(after, None)
    assert mean[0, 0, 0] == pytest.approx(0.4)
    assert variance[0, 0, 0] == pytest.approx(0.2)
    assert log_predictive[0, 0] == pytest.approx(-0.5 * (np.log(2 * np.pi * 1.25) + 1 / 1.25))


def test_linear_posterior_by_hand():
    # Prior N((1, 0), I), noise 1, features (2, 0), reward 3: the predictive is N(2, 4 + 1),
    # the first weight goes to 1 + (2 / 5) * (3 - 2) = 1.4, its variance to 1 - 4 / 5 = 0.2.
    model = LinearGaussian([[1.0, 0.0]], noise=1.0, covariances=[np.eye(2)])
    context = np.array([[[2.0, 0.0], [0.0, 1.0]]])
    log_predictive, after = model.condition(
        model.parameters(1), context, np.array([0]), np.array([3.0])
    )
    np.testing.assert_allclose(after.mean[0, 0], [1.4, 0.0])
    np.testing.assert_allclose(after.covariance[0, 0], [[0.2, 0.0], [0.0, 1.0]], atol=1e-15)
    assert log_predictive[0, 0] == pytest.approx(-0.5 * (np.log(2 * np.pi * 5) + 1 / 5))


def test_certain_models_learn_nothing_of_their_parameters():
    arms = GaussianArms([[0.2, 0.8]], noise=0.5)
    _, after = arms.condition(arms.parameters(1), None, np.array([0]), np.array([9.0]))
    mean, variance = arms.posterior_rewards(after, None)
    np.testing.assert_array_equal(mean[0], arms.means)
    np.testing.assert_array_equal(variance, 0)
    linear = LinearGaussian([[0.2, 0.8]], noise=0.5)
    context = np.eye(2)[None]
    _, after = linear.condition(linear.parameters(1), context, np.array([0]), np.array([9.0]))
    np.testing.assert_array_equal(after.mean[0], linear.weights)


def test_arrays_are_copied_and_read_only():
    means = np.array([[0.1, 0.9]])
    model = GaussianArms(means, noise=0.5)
    means[0, 0] = 5.0
    assert model.means[0, 0] == 0.1
    for array in (model.means, model.spread, model.state_prior):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(AttributeError):
        model.noise = 1.0


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_arms_keep_the_promises_of_a_model(spread):
    rng = np.random.default_rng(1)
    check_model(GaussianArms(rng.random((3, 4)), 0.5, spread, [0.2, 0.3, 0.5]), n_actions=4)


@pytest.mark.parametrize("scale", [0.0, 0.4])
def test_linear_keeps_the_promises_of_a_model(scale):
    rng = np.random.default_rng(2)
    roots = scale * rng.normal(size=(3, 2, 2))
    model = LinearGaussian(rng.normal(size=(3, 2)), 0.5, roots @ roots.swapaxes(1, 2))
    check_model(model, n_actions=4, context=lambda n, rng: rng.normal(size=(n, 4, 2)))


def test_each_session_may_have_its_own_instance():
    rng = np.random.default_rng(3)
    means, actions, rewards = rng.random((6, 3, 4)), rng.integers(4, size=6), rng.normal(size=6)
    together = GaussianArms(means, 0.5, 0.2)
    density, after = together.condition(together.parameters(6), None, actions, rewards)
    for i in range(6):
        alone = GaussianArms(means[i], 0.5, 0.2)
        one = slice(i, i + 1)
        expected, expected_after = alone.condition(
            alone.parameters(1), None, actions[one], rewards[one]
        )
        np.testing.assert_allclose(density[one], expected)
        np.testing.assert_allclose(
            together.posterior_rewards(after, None)[0][one],
            alone.posterior_rewards(expected_after, None)[0],
        )
        np.testing.assert_allclose(
            together.log_likelihood(None, actions, rewards)[one],
            alone.log_likelihood(None, actions[one], rewards[one]),
        )


def test_each_session_may_have_its_own_linear_instance():
    rng = np.random.default_rng(4)
    weights, context = rng.normal(size=(5, 3, 2)), rng.normal(size=(5, 4, 2))
    covariances = np.broadcast_to(0.1 * np.eye(2), (5, 3, 2, 2))
    together = LinearGaussian(weights, 0.5, covariances)
    actions, rewards = rng.integers(4, size=5), rng.normal(size=5)
    density, _ = together.condition(together.parameters(5), context, actions, rewards)
    states = rng.integers(3, size=5)
    for i in range(5):
        alone = LinearGaussian(weights[i], 0.5, covariances[i])
        one = slice(i, i + 1)
        expected, _ = alone.condition(alone.parameters(1), context[one], actions[one], rewards[one])
        np.testing.assert_allclose(density[one], expected)
        np.testing.assert_allclose(
            together.expected_rewards(context, states)[one],
            alone.expected_rewards(context[one], states[one]),
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(means=[[0.1, np.nan]], noise=1), r"means must be finite; means\[0, 1\] is nan"),
        (dict(means=[[0.1, np.inf]], noise=1), r"means\[0, 1\] is inf"),
        (dict(means=[0.1, 0.2], noise=1), "means must have 2 or 3 dimensions; got 1"),
        (dict(means=[[]], noise=1), "means is empty"),
        (dict(means=[[0.1], [0.2, 0.3]], noise=1), "means must be an array of numbers"),
        (dict(means=[["a"]], noise=1), "means must be an array of numbers"),
        (dict(means=[[0.1]], noise=-1), "noise must be a finite number above zero; got -1.0"),
        (dict(means=[[0.1]], noise=0), "noise must be a finite number above zero; got 0.0"),
        (dict(means=[[0.1]], noise="x"), "noise must be a number; got 'x'"),
        (dict(means=[[0.1]], noise=np.nan), "noise must be a finite number"),
        (dict(means=[[0.1]], noise=1, spread=-0.1), "spread must not be negative; spread is -0.1"),
        (dict(means=[[0.1]], noise=1, spread=[[1, 2]]), r"spread must be one number or of shape"),
        (dict(means=[[0.1], [0.2]], noise=1, state_prior=[0.4, 0.4]), "it sums to 0.8"),
        (dict(means=[[0.1], [0.2]], noise=1, state_prior=[1.0]), r"must be of shape \(2,\)"),
        (dict(means=[[0.1], [0.2]], noise=1, state_prior=[1.5, -0.5]), "must not be negative"),
    ],
)
def test_arms_refuse(arguments, message):
    with pytest.raises(ValueError, match=message):
        GaussianArms(**arguments)


@pytest.mark.parametrize(
    ("covariances", "message"),
    [
        ([[[1.0, 0.5], [0.0, 1.0]]], "must be symmetric"),
        (
            [[[1.0, 2.0], [2.0, 1.0]]],
            r"positive semi-definite; covariances\[0\] has the eigenvalue",
        ),
        ([[1.0, 0.0], [0.0, 1.0]], "covariances must have 3 dimensions"),
        ([[[1.0]]], r"must be of shape \(1, 2, 2\)"),
        ([[[np.nan, 0.0], [0.0, 1.0]]], "must be finite"),
    ],
)
def test_linear_refuses(covariances, message):
    with pytest.raises(ValueError, match=message):
        LinearGaussian([[1.0, 0.0]], 1.0, covariances)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (None, r"needs a context: .* got None"),
        (np.zeros((2, 4)), r"context must be of shape \(n_sessions=2, n_actions, n_features=3\)"),
        (np.zeros((3, 4, 3)), r"got \(3, 4, 3\)"),
        (np.zeros((2, 4, 2)), r"got \(2, 4, 2\)"),
        (np.full((2, 4, 3), np.nan), "session 0, action 0, feature 0 is nan"),
        ([["a"]], "context must be an array of numbers"),
    ],
)
def test_linear_refuses_context(context, message):
    with pytest.raises(ValueError, match=message):
        LinearGaussian(np.zeros((1, 3)), 1.0).check_context(context, 2)


def test_large_but_finite_contexts_are_taken():
    model = LinearGaussian(np.zeros((1, 1)), 1.0)
    huge = np.full((1, 3, 1), 1e308)  # their sum overflows
    with np.errstate(over="ignore"):
        assert model.check_context(huge, 1) is not None


def test_arms_refuse_a_context():
    with pytest.raises(ValueError, match="GaussianArms takes no context"):
        GaussianArms([[0.1]], 1.0).check_context(np.zeros((1, 1, 1)), 1)


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_session_counts(n):
    with pytest.raises(ValueError, match="n_sessions must be a whole number of at least 1"):
        GaussianArms([[0.1]], 1.0).parameters(n)


def test_session_count_of_instances():
    with pytest.raises(ValueError, match="one instance for each of 2 sessions; got 3"):
        GaussianArms(np.zeros((2, 1, 1)), 1.0).parameters(3)
