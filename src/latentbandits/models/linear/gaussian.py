"""Rewards linear in per-action features: the paper's contextual model (Algorithm 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.arrays import blocks, log_normal_density, rows
from latentbandits.models.numerics.laws import Component, Student, Summary
from latentbandits.models.protocol import ConjugateModel, Context, StationaryModel


class LinearPosterior(NamedTuple):
    """N(mean, factor factor') of theta_s given s and a session's rewards.

    The covariance is kept as a square root. It is then symmetric and positive by construction after
    any number of rounds, and a draw is one product instead of one decomposition.
    """

    mean: FloatArray  # (n_sessions, n_states, n_features)
    factor: FloatArray  # (n_sessions, n_states, n_features, n_features), not triangular

    @property
    def covariance(self) -> FloatArray:
        return self.factor @ self.factor.swapaxes(-1, -2)

    @property
    def draws_depend_on_order(self) -> bool:
        """Return True: rewards in another order rotate the square root of the covariance.

        The same normal numbers then give another draw from the same distribution.
        """
        return True


class UserSums(NamedTuple):
    """Sums over the rounds of each of n users, from which `condition_on_sums` conditions."""

    gram: FloatArray  # (n, d, d): sum x x'
    products: FloatArray  # (n, d): sum x r
    squares: FloatArray  # (n,): sum r^2
    counts: FloatArray  # (n,)


class LinearModel(StationaryModel):
    """Base class of models whose mean rewards are linear in the features of the actions."""

    weights: FloatArray  # (n_states, n_features), or with a session axis first
    n_actions = None  # it comes with the context

    @property
    def n_features(self) -> int:
        return int(self.weights.shape[-1])

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        return checks.features(context, n_sessions, self.n_features)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LinearGaussian(LinearModel, ConjugateModel):
    """Rewards N(x' theta_s, noise^2), with theta_s ~ N(weights[s], covariances[s]).

    Args:
        weights: `(n_states, n_features)`, or with a session axis first if every session has an
            instance of its own.
        noise: standard deviation of a reward.
        covariances: `(n_states, n_features, n_features)`, with a session axis if `weights` has one;
            may be singular; None is certain.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = LinearGaussian([[1.0, 0.0], [0.0, 1.0]], noise=0.5)
    >>> model.expected_rewards(np.array([[[3.0, 1.0], [1.0, 2.0]]]))[0]
    array([[3., 1.],
           [1., 2.]])
    """

    summary: ClassVar[Summary] = Summary(
        "linear in features of the actions",
        "LinearGaussian(weights, noise, covariances)",
        "normal",
        "weights and their covariance",
        has_features=True,
        sub_gaussian=True,
    )

    has_normal_noise = True
    prior_fields: ClassVar[tuple[str, ...]] = ("weights", "covariances")

    weights: FloatArray
    noise: float
    covariances: FloatArray
    state_prior: FloatArray

    def __init__(
        self,
        weights: ArrayLike,
        noise: float,
        covariances: ArrayLike | None = None,
        state_prior: ArrayLike | None = None,
    ) -> None:
        centre = checks.finite_array("weights", weights, (2, 3))
        noise = checks.positive_number("noise", noise)
        matrices = checks.covariances("covariances", covariances, (*centre.shape, centre.shape[-1]))
        prior = checks.state_prior(state_prior, centre)
        checks.set_fields(
            self, weights=centre, noise=noise, covariances=matrices, state_prior=prior
        )

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape (n_states, n_features)."""
        weights = 2.0 * rng.standard_normal(shape)
        return cls(weights, 0.5, [0.25 * np.eye(shape[1])] * shape[0])

    @cached_property
    def is_certain(self) -> bool:
        return not self.covariances.any()

    @cached_property
    def spread_bound(self) -> float:
        """The root of the largest prior eigenvalue: a bound for features of length at most one."""
        return float(np.sqrt(max(np.linalg.eigvalsh(self.covariances).max(), 0.0)))

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        context = checks.required(context)
        if state is None:
            return self._weights @ context.swapaxes(1, 2)
        session = 0 if self.weights.ndim == 2 else np.arange(len(state))
        rewards: FloatArray = (context @ self._weights[session, state][:, :, None])[:, :, 0]
        return rewards

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        x = checks.played(context, action)
        means = (self._weights @ x[:, :, None])[:, :, 0]
        return log_normal_density(reward[:, None] - means, self.noise**2)

    def parameters(self, n_sessions: int) -> LinearPosterior:
        n = checks.session_count(n_sessions, self.n_sessions)
        return LinearPosterior(
            np.broadcast_to(self._weights, (n, *self._weights.shape[1:])),
            np.broadcast_to(self._factors, (n, *self._factors.shape[1:])),
        )

    def condition(
        self, parameters: LinearPosterior, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, LinearPosterior]:
        n, x = len(action), checks.played(context, action)
        log_predictive = np.empty((n, self.n_states))
        mean, factor = np.empty(parameters.mean.shape), np.empty(parameters.factor.shape)
        for block in blocks(n, self.n_states * self.n_features**2):
            log_predictive[block] = _condition(
                parameters.mean[block],
                parameters.factor[block],
                x[block],
                reward[block],
                self.noise**2,
                mean[block],
                factor[block],
            )
        return log_predictive, LinearPosterior(mean, factor)

    def condition_on_sums(self, sums: UserSums) -> tuple[FloatArray, LinearPosterior]:
        """Return the log marginal likelihood of each user's rewards `(n, S)`, and the posterior.

        A model that is fitted later conditions on all rounds by it.
        With a prior N(m, L L'), G = sum xx', b = sum xr and noise sigma^2:
        A = I + L' G L / sigma^2 and v = L' (b - G m), the posterior is
        N(m + L A^-1 v / sigma^2, L A^-1 L'), and the log marginal likelihood is
        -T/2 log(2 pi sigma^2) - log|A|/2 - (|r - Xm|^2 - v' A^-1 v / sigma^2) / (2 sigma^2).
        The prior may be singular.

        >>> model = LinearGaussian([[0.0]], 1.0, [[[1.0]]])
        >>> one = UserSums(np.ones((1, 1, 1)), np.ones((1, 1)), np.ones(1), np.ones(1))
        >>> model.condition_on_sums(one)[1].mean
        array([[[0.5]]])
        """
        means, factors = self.parameters(len(sums.counts))
        noise = self.noise**2
        gram, products = sums.gram[:, None], sums.products[:, None]
        residual = products - (gram @ means[..., None])[..., 0]
        rest = sums.squares[:, None] - ((products + residual) * means).sum(axis=-1)
        inner = factors.swapaxes(-1, -2) @ gram @ factors / noise
        inner += np.eye(inner.shape[-1])
        cholesky = np.linalg.cholesky(inner)
        inverse = np.linalg.inv(cholesky)  # A^-1 = inverse' inverse
        root = factors @ inverse.swapaxes(-1, -2)  # posterior covariance = root root'
        projected = (root.swapaxes(-1, -2) @ residual[..., None])[..., 0]
        mean = means + (root @ projected[..., None])[..., 0] / noise
        log_det = np.log(np.diagonal(cholesky, axis1=-2, axis2=-1)).sum(axis=-1)
        explained = (projected * projected).sum(axis=-1) / noise
        log_evidence: FloatArray = -0.5 * (
            (sums.counts * math.log(2 * math.pi * noise))[:, None] + (rest - explained) / noise
        )
        log_evidence -= log_det
        return log_evidence, LinearPosterior(mean, root)

    def posterior_rewards(
        self, parameters: LinearPosterior, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        context = checks.required(context)
        mean = parameters.mean @ context.swapaxes(1, 2)
        root = context[:, None] @ parameters.factor
        return mean, np.einsum("nskd,nskd->nsk", root, root)

    def average_rewards(
        self, weights: FloatArray, parameters: LinearPosterior, context: Context
    ) -> FloatArray:
        """Return x' sum_s w_s E[theta_s]: one product of the features with a vector."""
        theta = weights[:, None, :] @ parameters.mean  # (n, 1, n_features)
        return (theta @ checks.required(context).swapaxes(1, 2))[:, 0]

    def sample_rewards(
        self,
        parameters: LinearPosterior,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        normals = rng.standard_normal((*state.shape, self.n_features))
        return self.rewards_from_normals(parameters, context, state, normals)

    @property
    def n_normals(self) -> int:
        """Number of standard normal draws from which one draw of all mean rewards is made."""
        return self.n_features

    def rewards_from_normals(
        self, parameters: LinearPosterior, context: Context, state: IntArray, normals: FloatArray
    ) -> FloatArray:
        """Return `sample_rewards` made from given standard normals, `(1 or n, m, n_features)`."""
        features, (n, m) = checks.required(context), state.shape
        if m <= self.n_states:
            theta = _theta(parameters.mean, parameters.factor, state, normals)
        else:
            theta = np.empty((n, m, self.n_features))
            normals = np.broadcast_to(normals, theta.shape)
            for block in blocks(n, m * self.n_features**2):
                drawn = parameters.mean[block], parameters.factor[block]
                theta[block] = _theta(*drawn, state[block], normals[block])
        return theta @ features.swapaxes(1, 2)

    def point_theta(self, state: IntArray) -> FloatArray:
        """Return the weights that `log_likelihood` takes for users in `state` (n,)."""
        return rows(self._weights, state)

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> FloatArray:
        draws = rng.standard_normal((len(state), self.n_features))
        theta = (rows(self._factors, state) @ draws[:, :, None])[:, :, 0]
        theta += rows(self._weights, state)
        return theta

    def mean_rewards(self, theta: FloatArray, context: Context) -> FloatArray:
        return (checks.required(context) @ theta[:, :, None])[:, :, 0]

    def draw_rewards(
        self, theta: FloatArray, context: Context, rng: np.random.Generator
    ) -> FloatArray:
        means = self.mean_rewards(theta, context)
        return means + self.noise * rng.standard_normal(means.shape)

    def log_reward_density(
        self, theta: FloatArray, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        means = np.einsum("nd,nd->n", checks.played(context, action), theta)
        return log_normal_density(reward - means, self.noise**2)

    def vague(self) -> LinearGaussian:
        """Return one state with the covariance of weights within and between states."""
        mean = self.weights.mean(axis=-2, keepdims=True)
        offsets = self.weights - mean
        between = offsets.swapaxes(-1, -2) @ offsets / self.n_states
        covariance = between + self.covariances.mean(axis=-3)
        return LinearGaussian(mean, self.noise, covariance[..., None, :, :])

    @cached_property
    def _weights(self) -> FloatArray:
        return self.weights.reshape(-1, self.n_states, self.n_features)

    @cached_property
    def _factors(self) -> FloatArray:
        """Square roots of the covariances, which may be singular."""
        values, vectors = np.linalg.eigh(self.covariances)
        factors = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
        shaped: FloatArray = factors.reshape(*self._weights.shape, self.n_features)
        return shaped


def _theta(
    mean: FloatArray, factor: FloatArray, state: IntArray, normals: FloatArray
) -> FloatArray:
    """Return the weights of draws of the states (n, m) made from standard normals, `(n, m, d)`."""
    theta = (_at(factor, state) @ normals[..., None])[..., 0]
    theta += _at(mean, state)
    return theta


def _at(values: FloatArray, state: IntArray) -> FloatArray:
    """Return the rows of `values` (n, n_states, ...) at the states (n, m): `(n, m, ...)`."""
    if len(values) == 1:
        return rows(values, state)
    chosen: FloatArray = values[np.arange(len(values))[:, None], state]  # a prior has one row
    return chosen


def _condition(
    mean: FloatArray,
    factor: FloatArray,
    x: FloatArray,
    reward: FloatArray,
    noise: float,
    out_mean: FloatArray,
    out_factor: FloatArray,
) -> FloatArray:
    """Update mean and factor by Potter's square-root form (errata E3, E4); return log N(r; x'm, v).

    With f = L'x and v = f'f + noise: m <- m + L f (r - x'm) / v and
    L <- L - L f f' / (v + sqrt(noise v)), whose L L' is cov - cov x x' cov / v.
    """
    f = (x[:, None, None, :] @ factor)[:, :, 0]
    gain = (factor @ f[..., None])[..., 0]
    variance = np.einsum("nsd,nsd->ns", f, f)
    variance += noise
    residual = reward[:, None] - (mean @ x[:, :, None])[..., 0]
    np.multiply(gain, (residual / variance)[..., None], out=out_mean)
    out_mean += mean
    f /= (variance + np.sqrt(noise * variance))[..., None]
    np.einsum("nsd,nse->nsde", gain, f, out=out_factor)
    np.subtract(factor, out_factor, out=out_factor)
    return log_normal_density(residual, variance)


# Rewards linear in features, of unknown noise: normal-inverse-gamma per state.


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
class LinearGaussianUnknownNoise(LinearModel, ConjugateModel):
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

    prior_fields: ClassVar[tuple[str, ...]] = (
        *LinearGaussian.prior_fields,
        "noise_scale",
        "noise_count",
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
        arrays = unit._prior_arrays() | {"noise_scale": scale, "noise_count": count}
        checks.set_fields(self, **arrays, state_prior=unit.state_prior)

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape (n_states, n_features)."""
        weights = 2.0 * rng.standard_normal(shape)
        return cls(weights, [0.25 * np.eye(shape[1])] * shape[0], 0.5, 10.0)

    @cached_property
    def noise(self) -> float:
        """The root of the largest prior mean of sigma_s^2."""
        return float(np.sqrt(self._mean_variance.max()))

    @cached_property
    def spread_bound(self) -> float:
        """A bound for features of length at most one."""
        return self.noise * self._unit.spread_bound

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

    def vague(self) -> LinearGaussianUnknownNoise:
        """Return one state of mean noise, with the covariance within and between states."""
        unit = self._unit.vague()
        variance = self._mean_variance.reshape(self.weights.shape[:-1]).mean(axis=-1)
        between = unit.covariances[..., 0, :, :] - self.covariances.mean(axis=-3)
        covariance = between / variance[..., None, None] + self.covariances.mean(axis=-3)
        count = self.noise_count.min()
        scale = np.sqrt(variance * (count - 2) / count)[..., None]
        return LinearGaussianUnknownNoise(unit.weights, covariance[..., None, :, :], scale, count)

    @cached_property
    def _unit(self) -> LinearGaussian:
        """This model with rewards divided by the noise."""
        return LinearGaussian(self.weights, 1.0, self.covariances, self.state_prior)

    @property
    def covariance_units(self) -> FloatArray:
        first: FloatArray = self._mean_variance[0]
        return first

    @cached_property
    def _mean_variance(self) -> FloatArray:
        """E[sigma_s^2], `(1 or n_sessions, n_states)`."""
        variance = self.noise_count * self.noise_scale**2 / (self.noise_count - 2)
        return variance.reshape(-1, self.n_states)
