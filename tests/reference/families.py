"""The reward families from their textbook densities, by numerical integration.

Nothing of Appendix A is used: scipy's densities of the prior and of the rewards, multiplied and
integrated over theta.
"""

import math

import numpy as np
from scipy import integrate, special, stats


def beta_bernoulli(alpha, beta):
    def prior(p):
        return p ** (alpha - 1) * (1 - p) ** (beta - 1) / special.beta(alpha, beta)

    return prior, lambda r, p: p if r else 1 - p, (0.0, 1.0), lambda p: p


def gamma_density(shape, rate):
    def density(x):
        return math.exp(shape * math.log(rate) + (shape - 1) * math.log(x) - rate * x) / constant

    constant = special.gamma(shape)
    return density, (0.0, 3 * stats.gamma.ppf(1 - 1e-15, shape) / rate)


def gamma_poisson(shape, rate):
    prior, limits = gamma_density(shape, rate)
    return prior, lambda r, m: math.exp(-m) * m**r / math.factorial(int(r)), limits, lambda m: m


def gamma_exponential(shape, scale):
    prior, limits = gamma_density(shape, scale)
    return prior, lambda r, rate: rate * math.exp(-rate * r), limits, lambda rate: 1 / rate


def integrals(family, rewards):
    """The evidence of `rewards`, and mean and variance of the mean reward given them."""
    prior, density, (low, high), mean = family

    def moment(power):
        def integrand(theta):
            likelihood = math.prod(density(r, theta) for r in rewards)
            return prior(theta) * likelihood * mean(theta) ** power

        return integrate.quad(integrand, low, high, limit=500, epsabs=0, epsrel=1e-11)[0]

    evidence, first, second = (moment(power) for power in range(3))
    return evidence, first / evidence, second / evidence - (first / evidence) ** 2


def normal_inverse_gamma(mean, noise_scale, mean_count, noise_count, rewards):
    """Evidence, and mean and variance of theta, by a double integral over theta and sigma^2."""
    prior_variance = stats.invgamma(noise_count / 2, scale=noise_count * noise_scale**2 / 2)

    nodes, weights = np.polynomial.legendre.leggauss(200)
    low, high = np.log(noise_scale**2) - 8, np.log(noise_scale**2) + 12
    variance = np.exp(0.5 * (high - low) * (nodes + 1) + low)[:, None]
    reach = 10 * np.sqrt(variance) + 2
    theta = mean + reach * nodes
    density = stats.norm.pdf(theta, mean, np.sqrt(variance / mean_count))
    density = density * prior_variance.pdf(variance) * variance
    for reward in rewards:
        density = density * stats.norm.pdf(reward, theta, np.sqrt(variance))

    def moment(power):
        inner = (density * theta**power * reach) @ weights
        return inner @ weights * 0.5 * (high - low)

    evidence, first, second = (moment(power) for power in range(3))
    return evidence, first / evidence, second / evidence - (first / evidence) ** 2


def dirichlet_categorical(concentration, values, categories, rng, n_draws):
    """Evidence and posterior mean by averaging over draws of the prior, with standard errors."""
    theta = rng.dirichlet(concentration, n_draws)
    likelihood = np.prod(theta[:, categories], axis=1)
    evidence = likelihood.mean()
    mean = (likelihood * (theta @ values)).mean() / evidence
    return evidence, likelihood.std() / np.sqrt(n_draws), mean
