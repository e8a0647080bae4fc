"""Draws of a family's mean reward against its posterior by quadrature: Kolmogorov-Smirnov tests
that reject a correct sampler with probability 1e-6, and reject a planted bug.
"""

import numpy as np
import pytest
from scipy.stats import kstest

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    ExponentialArms,
    GaussianArmsUnknownNoise,
    PoissonArms,
)
from tests.reference import families

ALPHA = 1e-6
N = 20_000
CASES = {
    "bernoulli": (BernoulliArms([[2.5]], [[1.5]]), families.beta_bernoulli(2.5, 1.5),
                  [1.0, 0.0, 1.0]),
    "poisson": (PoissonArms([[3.0]], [[1.5]]), families.gamma_poisson(3.0, 1.5), [4.0, 0.0, 7.0]),
    "exponential": (ExponentialArms([[3.5]], [[2.0]]), families.gamma_exponential(3.5, 2.0),
                    [0.3, 2.5, 1.0]),
}  # fmt: skip


def draws(model, rewards):
    parameters = model.parameters(1)
    for reward in rewards:
        _, parameters = model.condition(parameters, None, np.array([0]), np.array([reward]))
    state = np.zeros((1, N), np.int64)
    return model.sample_rewards(parameters, None, state, np.random.default_rng(5))[0, :, 0]


def distribution(family, rewards):
    """The distribution function of the mean reward, from prior times likelihood on a fine grid."""
    prior, density, (low, high), mean = family
    edges = np.linspace(low, high, 20_001)
    theta = 0.5 * (edges[1:] + edges[:-1])
    weight = [prior(t) * np.prod([density(r, t) for r in rewards]) for t in theta]
    order = np.argsort([mean(t) for t in theta])
    means = np.array([mean(t) for t in theta])[order]
    cumulative = np.cumsum(np.array(weight)[order])
    return lambda x: np.interp(x, means, cumulative / cumulative[-1])


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_posterior_distribution(name):
    model, family, rewards = CASES[name]
    cdf = distribution(family, rewards)
    assert kstest(draws(model, rewards), cdf).pvalue > ALPHA


@pytest.mark.parametrize("name", CASES)
def test_draws_that_forgot_a_reward_are_caught(name):
    model, family, rewards = CASES[name]
    cdf = distribution(family, rewards)
    assert kstest(draws(model, rewards[1:]), cdf).pvalue < ALPHA


def test_unknown_noise_gives_students_t():
    """Theta | rewards is t with noise_count + n degrees of freedom (Gelman et al., 3.3)."""
    from scipy.stats import norm, t

    rewards = np.array([1.1, -0.3])
    model = GaussianArmsUnknownNoise([[0.4]], 0.6, 2.0, 3.0)
    mean = (2.0 * 0.4 + rewards.sum()) / 4
    squares = 3 * 0.6**2 + np.square(rewards).sum() + 2 * 0.4**2 - 4 * mean**2
    scale = np.sqrt(squares / 5 / 4)
    actual = draws(model, rewards)
    assert kstest(actual, t(5, mean, scale).cdf).pvalue > ALPHA
    assert kstest(actual, norm(mean, scale).cdf).pvalue < ALPHA


@pytest.mark.parametrize("strength", [0.02, 1.0])
def test_dirichlet_draws_have_beta_margins(strength):
    """With values -1, 0 and 0+ the mean reward is minus one probability: beta. Also in log space,
    where draws are made if gammas may underflow.
    """
    from scipy.stats import beta

    model = CategoricalArms(strength * np.array([[[1.0, 2.0, 3.0]]]), values=[-1.0, 0.0, 1e-300])
    actual = -draws(model, [0.0])
    assert kstest(actual, beta(strength, 5 * strength + 1).cdf).pvalue > ALPHA
    assert kstest(actual, beta(1.5 * strength, 5 * strength + 1).cdf).pvalue < ALPHA
