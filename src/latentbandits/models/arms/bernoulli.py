"""Bernoulli rewards with beta priors: clicks, sales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.arms.conjugate import DirichletArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.numerics import dirichlet
from latentbandits.models.numerics.laws import BINARY, Beta, Summary, Support


@dataclass(frozen=True, eq=False, init=False, repr=False)
class BernoulliArms(DirichletArms):
    """Rewards are 0 or 1 with P(1) = theta[s, a], and theta[s, a] ~ Beta(alpha[s, a], beta[s, a]).

    Args:
        alpha: the number of ones that the prior is worth, `(n_states, n_actions)` or with a session
            axis first.
        beta: the number of zeros, like `alpha`; one of the two may be a single number.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = BernoulliArms(alpha=[[9.0, 1.0], [2.0, 8.0]], beta=[[1.0, 9.0], [8.0, 2.0]])
    >>> model.expected_rewards(None)[0]
    array([[0.9, 0.1],
           [0.2, 0.8]])
    """

    summary: ClassVar[Summary] = Summary(
        "0 or 1: clicks, sales",
        "BernoulliArms(alpha, beta)",
        "beta",
        "ones and zeros that the prior is worth",
        sub_gaussian=True,
    )

    family_name: ClassVar[str] = "bernoulli"
    prior_fields: ClassVar[tuple[str, ...]] = ("alpha", "beta")

    alpha: FloatArray
    beta: FloatArray
    state_prior: FloatArray

    def __init__(
        self, alpha: ArrayLike, beta: ArrayLike, state_prior: ArrayLike | None = None
    ) -> None:
        arrays = checks.positive_arrays(alpha=alpha, beta=beta)
        prior = checks.state_prior(state_prior, arrays["alpha"])
        checks.set_fields(self, **arrays, state_prior=prior)

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape ([n_sessions,] n_states, n_actions)."""
        means = rng.uniform(0.05, 0.95, shape)
        return cls.from_means(means, 0.1)

    @classmethod
    def from_means(
        cls, means: ArrayLike, spread: ArrayLike, state_prior: ArrayLike | None = None
    ) -> Self:
        """Return the model whose beta priors have these means and standard deviations.

        >>> BernoulliArms.from_means([[0.5]], spread=(1 / 12) ** 0.5).alpha.round(6)
        array([[1.]])
        """
        mean, deviation = np.broadcast_arrays(np.asarray(means, float), np.asarray(spread, float))
        variance = deviation**2
        widest = mean * (1 - mean)
        if not ((widest > 0) & (variance > 0) & (variance < widest)).all():
            raise ValueError(
                "a beta prior needs means inside (0, 1) and a spread inside "
                f"(0, sqrt(mean (1 - mean))); got means from {mean.min()} to {mean.max()}, "
                f"spread from {deviation.min()} to {deviation.max()}"
            )
        strength = widest / variance - 1
        return cls(mean * strength, (1 - mean) * strength, state_prior)

    @property
    def support(self) -> Support:
        return BINARY

    @property
    def noise(self) -> float:
        """Rewards in [0, 1] are 1/2-sub-Gaussian."""
        return 0.5

    def statistic(self, reward: FloatArray) -> FloatArray:
        return np.stack([reward, 1 - reward], axis=-1)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.array([1.0, 1.0]), np.array([1.0, 0.0])

    def allowed_means(self, means: FloatArray) -> FloatArray:
        return np.clip(means, 1e-6, 1 - 1e-6)

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        alpha, strength = phi[..., 0], phi[..., 0] + phi[..., 1]
        mean = alpha / strength
        return mean, mean * (phi[..., 1] / strength) / (strength + 1)

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        mean = self.moments(phi)[0]
        return mean * (1 - mean)

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        above = np.where(reward < 1, self.moments(phi)[0], 0.0)
        above = np.where(reward < 0, 1.0, above)
        return 1 - above, above

    def law(self, phi: FloatArray) -> Beta:
        return Beta(phi[..., 0], phi[..., 1])

    def sample(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        draws = dirichlet.unnormalised(phi, rng)
        return draws[..., 0] / (draws[..., 0] + draws[..., 1])

    def point(self, phi: FloatArray) -> FloatArray:
        return self.moments(phi)[0]

    def mean_reward(self, theta: FloatArray) -> FloatArray:
        return theta

    def log_density(self, theta: FloatArray, reward: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(np.where(reward == 1, theta, 1 - theta))

    def draw(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        return (rng.random(theta.shape) < theta).astype(np.float64)

    def vague(self) -> Self:
        mean, deviation = self._overall()
        widest = np.sqrt(mean * (1 - mean))
        return type(self).from_means(mean, np.minimum(deviation, 0.99 * widest))
