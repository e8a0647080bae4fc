"""Gaussian rewards of unknown noise: normal-inverse-gamma priors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.numerics.arrays import log_normal_density
from latentbandits.models.numerics.laws import Student, Summary

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_TINY = np.finfo(np.float64).tiny


class MeanAndNoise(NamedTuple):
    """A mean reward and the standard deviation of rewards, arrays of one shape."""

    mean: FloatArray
    noise: FloatArray  # standard deviation


@dataclass(frozen=True, eq=False, init=False, repr=False)
class GaussianArmsUnknownNoise(ConjugateArms):
    """Rewards N(theta[s, a], sigma[s, a]^2), both unknown: normal-inverse-gamma.

    theta is N(means, sigma^2 / mean_count) and sigma^2 is noise_scale^2 noise_count / chi^2 with
    `noise_count` degrees of freedom. All arrays are `(n_states, n_actions)` or with a session axis
    first; all but `means` may be single numbers.

    Args:
        means: prior means of theta.
        noise_scale: a guess of sigma.
        mean_count: the number of rewards that the prior of theta is worth.
        noise_count: the number of rewards that the prior of sigma is worth; above 2, so that the
            mean reward has a variance.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = GaussianArmsUnknownNoise([[0.9, 0.1]], 0.5, mean_count=4, noise_count=10)
    >>> model.posterior_rewards(model.parameters(1), None)[1].round(6)
    array([[[0.078125, 0.078125]]])
    """

    summary: ClassVar[Summary] = Summary(
        "numbers around a mean, noise unknown",
        "GaussianArmsUnknownNoise(means, noise_scale, mean_count, noise_count)",
        "normal-inverse-gamma",
        "a guess of both, and how many rewards each guess is worth",
    )

    prior_fields: ClassVar[tuple[str, ...]] = ("means", "noise_scale", "mean_count", "noise_count")

    means: FloatArray
    noise_scale: FloatArray
    mean_count: FloatArray
    noise_count: FloatArray
    state_prior: FloatArray

    def __init__(
        self,
        means: ArrayLike,
        noise_scale: ArrayLike,
        mean_count: ArrayLike,
        noise_count: ArrayLike,
        state_prior: ArrayLike | None = None,
    ) -> None:
        centre = checks.finite_array("means", means, (2, 3))
        arrays = checks.positive_arrays(
            noise_scale=np.broadcast_to(noise_scale, centre.shape),
            mean_count=mean_count,
            noise_count=noise_count,
        )
        checks.above(
            "noise_count", arrays["noise_count"], 2, "so that the mean reward has a variance"
        )
        prior = checks.state_prior(state_prior, centre)
        checks.set_fields(self, means=centre, **arrays, state_prior=prior)

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape ([n_sessions,] n_states, n_actions)."""
        means = rng.uniform(0.0, 1.0, shape)
        return cls(means, 0.5, mean_count=10.0, noise_count=10.0)

    def _priors_of(self, means: FloatArray, variances: FloatArray) -> dict[str, FloatArray]:
        """Return priors with the given means and the noise of the average action."""

        def average(values: FloatArray) -> FloatArray:
            return np.broadcast_to(values.mean(axis=1, keepdims=True), means.shape)

        scale, count = average(self.noise_scale), average(self.noise_count)
        variance = (
            scale**2 * count / (count - 2)
        )  # E[sigma^2]; a mean's variance is own / mean_count
        mean_count = variance / np.maximum(variances, 1e-12)
        return {"means": means, "noise_scale": scale, "mean_count": mean_count,
                "noise_count": count}  # fmt: skip

    @property
    def noise(self) -> float:
        """The root of the largest prior mean of sigma^2."""
        return float(self.point(self.prior_hyperparameters).noise.max())

    def _hyperparameters(self) -> FloatArray:
        """Return kappa, kappa m, 2 b + kappa m^2 and 2 a, to which a reward adds 1, r, r^2 and 1.

        m and r are measured from the centre, so that the sum of squares does not cancel.
        """
        offset = self.means - self._centre
        return np.stack(
            [
                self.mean_count,
                self.mean_count * offset,
                self.noise_count * self.noise_scale**2 + self.mean_count * offset**2,
                self.noise_count,
            ],
            axis=-1,
        )

    def statistic(self, reward: FloatArray) -> FloatArray:
        offset = reward - self._centre
        one = np.ones_like(offset)
        return np.stack([one, offset, offset * offset, one], axis=-1)

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        from scipy.special import gammaln

        a = phi[..., 3] / 2
        return gammaln(a) - a * np.log(_squares(phi) / 2) - 0.5 * np.log(phi[..., 0])

    def log_base_measure(self, reward: FloatArray) -> float:
        return -_HALF_LOG_2PI

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = phi[..., 1] / phi[..., 0] + self._centre
        return mean, _squares(phi) / (phi[..., 3] - 2) / phi[..., 0]

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        from scipy.special import stdtr

        mean, freedom = self.moments(phi)[0], phi[..., 3]
        scale = np.sqrt(_squares(phi) / freedom * (1 + 1 / phi[..., 0]))
        z = (reward - mean) / scale
        return stdtr(freedom, z), stdtr(freedom, -z)

    def law(self, phi: FloatArray) -> Student:
        centre = phi[..., 1] / phi[..., 0] + self._centre
        return Student(centre, np.sqrt(_squares(phi) / phi[..., 3] / phi[..., 0]), phi[..., 3])

    def sample(self, phi: FloatArray, rng: np.random.Generator) -> MeanAndNoise:
        noise = np.sqrt(0.5 * _squares(phi) / rng.standard_gamma(phi[..., 3] / 2))
        mean = noise / np.sqrt(phi[..., 0])
        mean *= rng.standard_normal(mean.shape)
        mean += phi[..., 1] / phi[..., 0]
        mean += self._centre
        return MeanAndNoise(mean, noise)

    def sample_means(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw Student's t: a normal variable over the root of a gamma variable."""
        count, total = np.ascontiguousarray(phi[..., 0]), phi[..., 1]
        offset = total / count
        spread = phi[..., 2] - total * offset
        np.maximum(spread, _TINY, out=spread)  # as in _squares
        count *= rng.standard_gamma(0.5 * phi[..., 3])
        spread /= count
        spread *= 0.5
        means: FloatArray = np.sqrt(spread, out=spread)
        means *= rng.standard_normal(means.shape)
        offset += self._centre
        means += offset
        return means

    def point(self, phi: FloatArray) -> MeanAndNoise:
        return MeanAndNoise(self.moments(phi)[0], np.sqrt(_squares(phi) / (phi[..., 3] - 2)))

    def mean_reward(self, theta: MeanAndNoise) -> FloatArray:
        return theta.mean

    def log_density(self, theta: MeanAndNoise, reward: FloatArray) -> FloatArray:
        return log_normal_density(reward - theta.mean, theta.noise**2)

    def draw(self, theta: MeanAndNoise, rng: np.random.Generator) -> FloatArray:
        return theta.mean + theta.noise * rng.standard_normal(theta.mean.shape)

    def vague(self) -> Self:
        mean, deviation = self._overall()
        squares = np.square(self.point(self.prior_hyperparameters).noise)
        variance = self._one_state(squares.mean(axis=(1, 2), keepdims=True))
        count = float(self.noise_count.min())
        scale = np.sqrt(variance * (count - 2) / count)
        return type(self)(mean, scale, variance / deviation**2, count)

    @cached_property
    def _centre(self) -> float:
        return float(self.means.mean())


def _squares(phi: FloatArray) -> FloatArray:
    """Return 2 b, the sum of squares around the mean, above zero whatever the rounding."""
    return np.maximum(phi[..., 2] - phi[..., 1] ** 2 / phi[..., 0], _TINY)
