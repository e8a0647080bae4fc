"""Rewards linear in features, of unknown noise: normal-inverse-gamma per state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.linear.gaussian import LinearGaussian, LinearPosterior
from latentbandits.models.numerics.arrays import log_normal_density, rows
from latentbandits.models.numerics.laws import Component, Student, Summary
from latentbandits.models.protocol import Context, StationaryModel


class LinearNoisePosterior(NamedTuple):
    """Posterior of theta_s / sigma_s (normal) and sigma_s^2 (inverse gamma).

    The inverse gamma has shape counts / 2 and scale squares / 2.
    """

    mean: FloatArray  # (n_sessions, n_states, n_features)
    factor: FloatArray  # (n_sessions, n_states, n_features, n_features)
    squares: FloatArray  # (n_sessions, n_states), 2 b
    counts: FloatArray  # (n_sessions, n_states), 2 a

    @property
    def linear(self) -> LinearPosterior:
        return LinearPosterior(self.mean, self.factor)

    @property
    def draws_depend_on_order(self) -> bool:
        """Return True, for the reason given in `LinearPosterior`."""
        return self.linear.draws_depend_on_order


class WeightsAndNoise(NamedTuple):
    """The parameters of n users."""

    weights: FloatArray  # (n, n_features)
    noise: FloatArray  # (n,), standard deviations


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LinearGaussianUnknownNoise(StationaryModel):
    """Rewards N(x' theta_s, sigma_s^2), both unknown: theta_s ~ N(weights, sigma_s^2 covariances).

    sigma_s^2 is noise_scale^2 noise_count / chi^2 with `noise_count` degrees of freedom.

    Args:
        weights: `(n_states, n_features)`, or with a session axis first.
        covariances: `(n_states, n_features, n_features)`, in units of sigma_s^2.
        noise_scale: a guess of sigma_s, one number or `(n_states,)`.
        noise_count: the number of rewards that the guess is worth; above 2, so that rewards have a
            variance.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = LinearGaussianUnknownNoise([[1.0, 0.0]], [np.eye(2)], 0.5, noise_count=8)
    >>> model.expected_rewards(np.array([[[3.0, 1.0]]]))[0]
    array([[3.]])
    """

    summary: ClassVar[Summary] = Summary(
        "linear in features, noise unknown",
        "LinearGaussianUnknownNoise(weights, covariances, noise_scale, noise_count)",
        "normal-inverse-gamma",
        "weights, and their covariance in units of the noise",
        has_features=True,
    )

    weights: FloatArray
    covariances: FloatArray
    noise_scale: FloatArray
    noise_count: FloatArray
    state_prior: FloatArray

    def __init__(
        self,
        weights: ArrayLike,
        covariances: ArrayLike,
        noise_scale: ArrayLike,
        noise_count: ArrayLike,
        state_prior: ArrayLike | None = None,
    ) -> None:
        unit = LinearGaussian(weights, 1.0, covariances, state_prior)
        shape = unit.weights.shape[:-1]
        scale = checks.non_negative_array("noise_scale", noise_scale, shape)
        checks.above("noise_scale", scale, 0, "as rewards have noise")
        count = checks.non_negative_array("noise_count", noise_count, shape)
        checks.above("noise_count", count, 2, "so that rewards have a variance")
        checks.set_fields(
            self,
            weights=unit.weights,
            covariances=unit.covariances,
            noise_scale=scale,
            noise_count=count,
            state_prior=unit.state_prior,
        )

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape (n_states, n_features)."""
        weights = 2.0 * rng.standard_normal(shape)
        return cls(weights, [0.25 * np.eye(shape[1])] * shape[0], 0.5, 10.0)

    @property
    def n_states(self) -> int:
        return self._unit.n_states

    @property
    def n_features(self) -> int:
        return self._unit.n_features

    @property
    def n_actions(self) -> None:
        return None

    @property
    def n_sessions(self) -> int | None:
        return self._unit.n_sessions

    @cached_property
    def noise(self) -> float:
        """The root of the largest prior mean of sigma_s^2."""
        return float(np.sqrt(self._mean_variance.max()))

    @cached_property
    def spread_bound(self) -> float:
        """A bound for features of length at most one."""
        return self.noise * self._unit.spread_bound

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        return self._unit.check_context(context, n_sessions)

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        return self._unit.expected_rewards(context, state)

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        played = checks.played(context, action)[:, None]
        means = self._unit.expected_rewards(played)[:, :, 0]
        return log_normal_density(reward[:, None] - means, self._mean_variance)

    def parameters(self, n_sessions: int) -> LinearNoisePosterior:
        linear = self._unit.parameters(n_sessions)
        shape = linear.mean.shape[:2]
        squares = np.broadcast_to(self.noise_count * self.noise_scale**2, shape)
        return LinearNoisePosterior(*linear, squares, np.broadcast_to(self.noise_count, shape))

    def condition(
        self,
        parameters: LinearNoisePosterior,
        context: Context,
        action: IntArray,
        reward: FloatArray,
    ) -> tuple[FloatArray, LinearNoisePosterior]:
        """Condition on rewards, whose predictive distribution is Student's t.

        With v = x' cov x + 1 and q = (r - x'm)^2 / v, its
        density is Gamma((n + 1) / 2) / Gamma(n / 2) / sqrt(pi v z) (1 + q / z)^(-(n + 1) / 2)
        for n counts and squares z, to which the reward adds 1 and q.
        """
        from scipy.special import gammaln

        played = checks.played(context, action)[:, None]
        mean, variance = self._unit.posterior_rewards(parameters.linear, played)
        variance = variance[:, :, 0] + 1
        residual = reward[:, None] - mean[:, :, 0]
        surprise = residual**2 / variance
        n, z = parameters.counts, parameters.squares
        log_predictive = gammaln((n + 1) / 2) - gammaln(n / 2)
        log_predictive -= 0.5 * np.log(math.pi * variance * z)
        log_predictive -= 0.5 * (n + 1) * np.log1p(surprise / z)
        _, linear = self._unit.condition(parameters.linear, context, action, reward)
        return log_predictive, LinearNoisePosterior(*linear, z + surprise, n + 1)

    def posterior_rewards(
        self, parameters: LinearNoisePosterior, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        mean, variance = self._unit.posterior_rewards(parameters.linear, context)
        scale = parameters.squares / (parameters.counts - 2)
        return mean, variance * scale[:, :, None]

    def average_rewards(
        self, weights: FloatArray, parameters: LinearNoisePosterior, context: Context
    ) -> FloatArray:
        return self._unit.average_rewards(weights, parameters.linear, context)

    def reward_laws(
        self, parameters: LinearNoisePosterior, context: Context
    ) -> tuple[Component, ...]:
        mean, variance = self._unit.posterior_rewards(parameters.linear, context)
        n, z = parameters.counts[:, :, None], parameters.squares[:, :, None]
        scale = np.sqrt(np.maximum(variance * z / n, np.finfo(np.float64).tiny))
        return (Component(None, Student(mean, scale, np.broadcast_to(n, mean.shape))),)

    def sample_rewards(
        self,
        parameters: LinearNoisePosterior,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        """Return x'm + sigma (x'theta - x'm) with theta drawn in units of the noise."""
        chosen = np.arange(len(state))[:, None], state
        noise = 0.5 * parameters.squares[chosen]
        noise /= rng.standard_gamma(parameters.counts[chosen] / 2)
        draws = self._unit.sample_rewards(parameters.linear, context, state, rng)
        mean = parameters.mean[chosen] @ checks.required(context).swapaxes(1, 2)
        draws -= mean
        draws *= np.sqrt(noise)[..., None]
        draws += mean
        return draws

    def point_theta(self, state: IntArray) -> WeightsAndNoise:
        """Return the parameters that `log_likelihood` takes for users in `state` (n,)."""
        variance = rows(self._mean_variance[..., None], state)[:, 0]
        return WeightsAndNoise(self._unit.point_theta(state), np.sqrt(variance))

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> WeightsAndNoise:
        shape = (-1, self.n_states, 1)
        scale = rows(self.noise_scale.reshape(shape), state)[:, 0]
        count = rows(self.noise_count.reshape(shape), state)[:, 0]
        noise = scale * np.sqrt(count / rng.chisquare(count))
        centre = self._unit.point_theta(state)
        offset = self._unit.draw_theta(state, rng) - centre
        return WeightsAndNoise(centre + noise[:, None] * offset, noise)

    def mean_rewards(self, theta: WeightsAndNoise, context: Context) -> FloatArray:
        return self._unit.mean_rewards(theta.weights, context)

    def draw_rewards(
        self, theta: WeightsAndNoise, context: Context, rng: np.random.Generator
    ) -> FloatArray:
        means = self.mean_rewards(theta, context)
        return means + theta.noise[:, None] * rng.standard_normal(means.shape)

    def log_reward_density(
        self, theta: WeightsAndNoise, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        means = np.einsum("nd,nd->n", checks.played(context, action), theta.weights)
        return log_normal_density(reward - means, theta.noise**2)

    def select(self, session: IntArray | None, state: IntArray) -> LinearGaussianUnknownNoise:
        unit = self._unit.select(session, state)
        scale, count = self.noise_scale, self.noise_count
        if session is None:
            scale, count = scale[state], count[state]
        else:
            chosen = (0 if self.n_sessions is None else session), state
            scale, count = (a.reshape(-1, self.n_states)[chosen][:, None] for a in (scale, count))
        return LinearGaussianUnknownNoise(unit.weights, unit.covariances, scale, count)

    def vague(self) -> LinearGaussianUnknownNoise:
        """Return one state of mean noise, with the covariance within and between states."""
        unit = self._unit.vague()
        variance = self._mean_variance.reshape(self.weights.shape[:-1]).mean(axis=-1)
        between = unit.covariances[..., 0, :, :] - self.covariances.mean(axis=-3)
        covariance = between / variance[..., None, None] + self.covariances.mean(axis=-3)
        count = self.noise_count.min()
        scale = np.sqrt(variance * (count - 2) / count)[..., None]
        return LinearGaussianUnknownNoise(unit.weights, covariance[..., None, :, :], scale, count)

    def with_state(
        self, other: LinearGaussianUnknownNoise, probability: float
    ) -> LinearGaussianUnknownNoise:
        unit = self._unit.with_state(other._unit, probability)
        shape = (*self.weights.shape[:-2], 1)
        scale, count = (
            np.concatenate([mine, np.broadcast_to(one, shape)], axis=-1)
            for mine, one in (
                (self.noise_scale, other.noise_scale),
                (self.noise_count, other.noise_count),
            )
        )
        return LinearGaussianUnknownNoise(
            unit.weights, unit.covariances, scale, count, unit.state_prior
        )

    @cached_property
    def _unit(self) -> LinearGaussian:
        """This model with rewards divided by the noise."""
        return LinearGaussian(self.weights, 1.0, self.covariances, self.state_prior)

    @cached_property
    def _mean_variance(self) -> FloatArray:
        """E[sigma_s^2], `(1 or n_sessions, n_states)`."""
        variance = self.noise_count * self.noise_scale**2 / (self.noise_count - 2)
        return variance.reshape(-1, self.n_states)
