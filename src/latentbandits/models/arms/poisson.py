"""Poisson rewards with gamma priors: counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.arms.conjugate import GammaArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.numerics import gamma
from latentbandits.models.numerics.laws import Counts, Gamma, Summary, Support


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

    family_name: ClassVar[str] = "poisson"
    smoothing: ClassVar[float | tuple[float, ...]] = (0.5, 1.0)
    prior_fields: ClassVar[tuple[str, ...]] = ("shape", "rate")

    shape: FloatArray
    rate: FloatArray
    state_prior: FloatArray

    def __init__(
        self, shape: ArrayLike, rate: ArrayLike, state_prior: ArrayLike | None = None
    ) -> None:
        arrays = checks.positive_arrays(shape=shape, rate=rate)
        prior = checks.state_prior(state_prior, arrays["shape"])
        checks.set_fields(self, **arrays, state_prior=prior)

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
    def support(self) -> Support:
        return Counts()

    @property
    def noise(self) -> float:
        """The deviation at the largest mean; Poisson rewards have no sub-Gaussian scale."""
        return float(np.sqrt(self._means.max()))

    def statistic(self, reward: FloatArray) -> FloatArray:
        return np.stack([reward, np.ones_like(reward)], axis=-1)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.array([0.0, 1.0]), np.array([1.0, 0.0])

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
        return gamma.standard_gamma(phi[..., 0], rng) / phi[..., 1]

    def point(self, phi: FloatArray) -> FloatArray:
        return self.moments(phi)[0]

    def mean_reward(self, theta: FloatArray) -> FloatArray:
        return theta

    def log_density(self, theta: FloatArray, reward: FloatArray) -> FloatArray:
        return reward * np.log(theta) - theta + self.log_base_measure(reward)

    def draw(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        return rng.poisson(theta).astype(np.float64)
