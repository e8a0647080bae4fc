"""Rewards with one parameter that has a gamma prior: counts, waiting times, amounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.numerics.laws import Counts, Gamma, Interval, InverseGamma, Summary


def log_normaliser(phi: FloatArray) -> FloatArray:
    """Return the log of Gamma(a) / b^a; phi (..., 2) is shape a and rate b.

    >>> float(log_normaliser(np.array([3.0, 1.0])).round(6))  # Gamma(3) = 2
    0.693147
    """
    from scipy.special import gammaln

    return gammaln(phi[..., 0]) - phi[..., 0] * np.log(phi[..., 1])


def expected(phi: FloatArray) -> FloatArray:
    """Return E[log theta] and -E[theta] under Gamma(a, b), the gradient of `log_normaliser`.

    >>> expected(np.array([3.0, 2.0])).round(6)
    array([ 0.229637, -1.5     ])
    """
    from scipy.special import digamma

    shape, rate = phi[..., 0], phi[..., 1]
    return np.stack([digamma(shape) - np.log(rate), -shape / rate], axis=-1)


class GammaArms(ConjugateArms):
    """Base class of rewards with one parameter that has a gamma prior; phi is shape and rate."""

    log_normaliser = staticmethod(log_normaliser)
    expected = staticmethod(expected)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class PoissonArms(GammaArms):
    """Rewards are Poisson(theta[s, a]), and theta[s, a] ~ Gamma(shape[s, a], rate[s, a]).

    The prior is worth `rate` rounds with `shape` events in all; its mean is shape / rate.

    Args:
        shape: above zero, `(n_states, n_actions)` or with a session axis first.
        rate: above zero, like `shape`; one of the two may be a single number.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> PoissonArms(shape=[[6.0, 2.0]], rate=2.0).expected_rewards(None)[0]
    array([[3., 1.]])
    """

    summary: ClassVar[Summary] = Summary(
        "counts: 0, 1, 2, ...",
        "PoissonArms(shape, rate)",
        "gamma",
        "events, and rounds they came in",
    )

    support = Counts()
    family_name: ClassVar[str] = "poisson"
    smoothing: ClassVar[float | tuple[float, ...]] = (0.5, 1.0)
    prior_fields: ClassVar[tuple[str, ...]] = ("shape", "rate")
    counts_and_sums = np.array([0.0, 1.0]), np.array([1.0, 0.0])

    shape: FloatArray
    rate: FloatArray
    state_prior: FloatArray

    def __init__(
        self, shape: ArrayLike, rate: ArrayLike, state_prior: ArrayLike | None = None
    ) -> None:
        checks.set_positive(self, state_prior, shape=shape, rate=rate)

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape ([n_sessions,] n_states, n_actions)."""
        means = rng.uniform(0.2, 4.0, shape)
        return cls.from_means(means, 0.4)

    @classmethod
    def from_means(
        cls, means: ArrayLike, spread: ArrayLike, state_prior: ArrayLike | None = None
    ) -> Self:
        """Return the model whose gamma priors have these means and standard deviations.

        >>> PoissonArms.from_means([[3.0]], spread=1.0).shape
        array([[9.]])
        """
        arrays = checks.positive_arrays(means=means, spread=spread)
        rate = arrays["means"] / arrays["spread"] ** 2
        return cls(arrays["means"] * rate, rate, state_prior)

    @property
    def noise(self) -> float:
        """The deviation at the largest mean; Poisson rewards have no sub-Gaussian scale."""
        return float(np.sqrt(self._means.max()))

    def statistic(self, reward: FloatArray) -> FloatArray:
        return np.stack([reward, np.ones_like(reward)], axis=-1)

    def log_base_measure(self, reward: FloatArray) -> FloatArray:
        from scipy.special import gammaln

        return -gammaln(reward + 1)

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = phi[..., 0] / phi[..., 1]
        return mean, mean / phi[..., 1]

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        return self.moments(phi)[0]

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the tails of the negative binomial distribution."""
        from scipy.special import betainc

        events, share = np.floor(reward) + 1, 1 / (phi[..., 1] + 1)
        inside = np.maximum(events, 1.0)
        below = betainc(phi[..., 0], inside, 1 - share)
        above = betainc(inside, phi[..., 0], share)
        return np.where(events > 0, below, 0.0), np.where(events > 0, above, 1.0)

    def law(self, phi: FloatArray) -> Gamma:
        return Gamma(phi[..., 0], phi[..., 1])

    def sample(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        return rng.standard_gamma(phi[..., 0]) / phi[..., 1]

    def log_density(self, theta: FloatArray, reward: FloatArray) -> FloatArray:
        return reward * np.log(theta) - theta + self.log_base_measure(reward)

    def draw(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        return rng.poisson(theta).astype(np.float64)


# Exponential rewards with gamma priors on their rates: waiting times, amounts.


@dataclass(frozen=True, eq=False, init=False, repr=False)
class ExponentialArms(GammaArms):
    """Rewards are exponential with mean 1 / theta[s, a], and theta[s, a] ~ Gamma(shape, scale).

    The prior is worth `shape` rewards that sum to `scale`. The mean reward 1 / theta is inverse
    gamma with mean scale / (shape - 1).

    Args:
        shape: above 2, so that the mean reward has a variance; `(n_states, n_actions)` or with a
            session axis first.
        scale: above zero, like `shape`; one of the two may be a single number.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> ExponentialArms(shape=5.0, scale=[[8.0, 4.0]]).expected_rewards(None)[0]
    array([[2., 1.]])
    """

    summary: ClassVar[Summary] = Summary(
        "waiting times, amounts",
        "ExponentialArms(shape, scale)",
        "gamma, on the rate",
        "rewards seen, and their sum",
    )

    support = Interval(low=0.0)
    family_name: ClassVar[str] = "exponential"
    prior_fields: ClassVar[tuple[str, ...]] = ("shape", "scale")
    counts_and_sums = np.array([1.0, 0.0]), np.array([0.0, 1.0])

    shape: FloatArray
    scale: FloatArray
    state_prior: FloatArray

    def __init__(
        self, shape: ArrayLike, scale: ArrayLike, state_prior: ArrayLike | None = None
    ) -> None:
        checks.set_positive(self, state_prior, shape=shape, scale=scale)
        checks.above("shape", self.shape, 2, "so that the mean reward has a variance")

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape ([n_sessions,] n_states, n_actions)."""
        means = rng.uniform(0.2, 3.0, shape)
        return cls.from_means(means, 0.3)

    @classmethod
    def from_means(
        cls, means: ArrayLike, spread: ArrayLike, state_prior: ArrayLike | None = None
    ) -> Self:
        """Return the model whose mean rewards have these means and standard deviations.

        >>> ExponentialArms.from_means([[2.0]], spread=1.0).shape
        array([[6.]])
        """
        arrays = checks.positive_arrays(means=means, spread=spread)
        shape = 2 + (arrays["means"] / arrays["spread"]) ** 2
        return cls(shape, arrays["means"] * (shape - 1), state_prior)

    @property
    def noise(self) -> float:
        """The deviation at the largest mean; exponential rewards have no sub-Gaussian scale."""
        return float(self._means.max())

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        if not (rewards > 0).any() and not cls.outside(rewards).any():
            raise ValueError("--rewards exponential needs rewards above 0; all of them are 0")
        return super().for_rewards(rewards)

    def statistic(self, reward: FloatArray) -> FloatArray:
        return np.stack([np.ones_like(reward), reward], axis=-1)

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        """Return shape kappa + 1 and scale kappa m: the prior mean of 1 / theta is then m."""
        prior: FloatArray = super().prior(centre, strength) + np.array([1.0, 0.0])
        return prior

    def log_base_measure(self, reward: FloatArray) -> float:
        return 0.0

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = phi[..., 1] / (phi[..., 0] - 1)
        return mean, mean**2 / (phi[..., 0] - 2)

    def prior_variance(self, prior: FloatArray) -> FloatArray:
        mean = self.moments(prior)[0]
        return mean**2 / np.maximum(prior[..., 0] - 2, 0.1)

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        return self.moments(phi)[0] ** 2

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the tails of the Lomax distribution."""
        log_above = -phi[..., 0] * np.log1p(np.maximum(reward, 0.0) / phi[..., 1])
        below: FloatArray = -np.expm1(log_above)
        return below, np.exp(log_above)

    def law(self, phi: FloatArray) -> InverseGamma:
        return InverseGamma(phi[..., 0], phi[..., 1])

    def sample(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw the mean reward, 1 / theta."""
        return phi[..., 1] / rng.standard_gamma(phi[..., 0])

    def log_density(self, theta: FloatArray, reward: FloatArray) -> FloatArray:
        return -np.log(theta) - reward / theta

    def draw(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        return rng.standard_exponential(theta.shape) * theta
