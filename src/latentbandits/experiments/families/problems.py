"""A synthetic problem for every family: 5 states, 10 actions, parameters drawn from the prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.environments.from_prior import ArmsFromPrior, LinearFromPrior
from latentbandits.environments.protocol import Environment
from latentbandits.environments.synthetic import Synthetic
from latentbandits.models import (
    BernoulliArms,
    CategoricalArms,
    ExponentialArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LogisticLinear,
    PoissonArms,
)
from latentbandits.models.checks import FloatArray, IntArray

N_STATES, N_ACTIONS, N_FEATURES = 5, 10, 5
_NOISE = 0.5
_WEIGHTS = 2.0 * np.random.default_rng(0).standard_normal((N_STATES, N_FEATURES))
_COVARIANCES = np.broadcast_to(0.25 * np.eye(N_FEATURES), (N_STATES, N_FEATURES, N_FEATURES))
_NOISE_COUNT = 10.0


def bernoulli(n: int, rng: np.random.Generator) -> BernoulliArms:
    return BernoulliArms.from_means(_uniform(n, rng, 0.05, 0.95), 0.1)


def poisson(n: int, rng: np.random.Generator) -> PoissonArms:
    return PoissonArms.from_means(_uniform(n, rng, 0.2, 4.0), 0.4)


def exponential(n: int, rng: np.random.Generator) -> ExponentialArms:
    return ExponentialArms.from_means(_uniform(n, rng, 0.2, 3.0), 0.3)


def categorical(n: int, rng: np.random.Generator) -> CategoricalArms:
    """Five stars, whose probabilities a prior has seen twenty ratings of."""
    shares = rng.dirichlet(np.ones(5), (n, N_STATES, N_ACTIONS))
    return CategoricalArms(20 * shares + 0.1, values=[1, 2, 3, 4, 5])


def unknown_noise(n: int, rng: np.random.Generator) -> GaussianArmsUnknownNoise:
    means = _uniform(n, rng, 0.0, 1.0)
    return GaussianArmsUnknownNoise(means, _NOISE, mean_count=10.0, noise_count=_NOISE_COUNT)


def _uniform(n: int, rng: np.random.Generator, low: float, high: float) -> FloatArray:
    return rng.uniform(low, high, (n, N_STATES, N_ACTIONS))


@dataclass(frozen=True)
class GaussianTruth:
    """Weights from the prior of the state; the noise too where it is unknown."""

    unknown: bool

    def draw(self, state: IntArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        noise = np.full(len(state), _NOISE)
        if self.unknown:
            noise *= np.sqrt(_NOISE_COUNT / rng.chisquare(_NOISE_COUNT, len(state)))
        unit = noise if self.unknown else np.ones(len(state))
        spread = unit[:, None] * rng.standard_normal((len(state), N_FEATURES))
        return _WEIGHTS[state] + np.sqrt(_COVARIANCES[0, 0, 0]) * spread, noise

    def means(self, theta: tuple[FloatArray, FloatArray], context: FloatArray) -> FloatArray:
        means: FloatArray = (context @ theta[0][:, :, None])[:, :, 0]
        return means

    def rewards(
        self, theta: tuple[FloatArray, FloatArray], means: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        return means + theta[1][:, None] * rng.standard_normal(means.shape)


@dataclass(frozen=True)
class LogisticTruth:
    """Clicks: the same weights through a logistic curve."""

    def draw(self, state: IntArray, rng: np.random.Generator) -> FloatArray:
        return GaussianTruth(unknown=False).draw(state, rng)[0]

    def means(self, theta: FloatArray, context: FloatArray) -> FloatArray:
        from scipy.special import expit

        means: FloatArray = expit(context @ theta[:, :, None])[:, :, 0]
        return means

    def rewards(self, theta: FloatArray, means: FloatArray, rng: np.random.Generator) -> FloatArray:
        return (rng.random(means.shape) < means).astype(np.float64)


PROBLEMS: dict[str, Environment] = {
    "GaussianArms": Synthetic(model_noise=0.2, gap=0.0),
    "GaussianArmsUnknownNoise": ArmsFromPrior(unknown_noise),
    "BernoulliArms": ArmsFromPrior(bernoulli),
    "PoissonArms": ArmsFromPrior(poisson),
    "ExponentialArms": ArmsFromPrior(exponential),
    "CategoricalArms": ArmsFromPrior(categorical),
    "LinearGaussian": LinearFromPrior(
        LinearGaussian(_WEIGHTS, _NOISE, _COVARIANCES), GaussianTruth(False), N_ACTIONS, N_FEATURES
    ),
    "LinearGaussianUnknownNoise": LinearFromPrior(
        LinearGaussianUnknownNoise(_WEIGHTS, _COVARIANCES, _NOISE, _NOISE_COUNT),
        GaussianTruth(True),
        N_ACTIONS,
        N_FEATURES,
    ),
    "LogisticLinear": LinearFromPrior(
        LogisticLinear(_WEIGHTS, _COVARIANCES), LogisticTruth(), N_ACTIONS, N_FEATURES
    ),
}
"""In the first, means have errors N(0, sigma0^2) that the model knows of; the others are drawn."""

SUB_GAUSSIAN = {
    "GaussianArms": _NOISE,
    "BernoulliArms": 0.5,
    "CategoricalArms": 2.0,
    "LinearGaussian": _NOISE,
    "LogisticLinear": 0.5,
}
"""Families whose rewards have the sub-Gaussian scale that the regret bounds need."""
