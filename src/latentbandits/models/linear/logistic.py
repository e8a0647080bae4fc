"""Bernoulli rewards whose log-odds are linear in features: clicks with features, by particles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.particle_model import ParticleModel
from latentbandits.models.linear.gaussian import LinearGaussian, LinearModel, LinearPosterior
from latentbandits.models.numerics.laws import BINARY, Summary
from latentbandits.models.protocol import ArraysByState, Context


class LinearClicks(LinearModel):
    """Base class of models of clicks whose log-odds are linear in features."""

    support = BINARY
    noise = 0.5  # rewards in [0, 1] are 1/2-sub-Gaussian

    covariances: FloatArray  # (n_states, d, d)
    offset: bool  # whether the last feature is added to the log-odds as it is

    @property
    def n_features(self) -> int:
        return int(self.weights.shape[1]) + self.offset

    @cached_property
    def _factors(self) -> FloatArray:
        return np.linalg.cholesky(self.covariances).astype(np.float64)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LogisticLinear(ArraysByState, LinearClicks, ParticleModel):
    """Rewards 0 or 1 with P(1) = 1 / (1 + exp(-x' theta_s)), theta_s ~ N(weights, covariances).

    `weights` is `(n_states, d)`, `covariances` `(n_states, d, d)`. With `offset` an action has
    d + 1 features, and the last one is added to x' theta as it is: a known popularity in log-odds,
    which no session can learn or forget.

    Args:
        weights: `(n_states, d)`.
        covariances: `(n_states, d, d)`.
        n_particles: particles of each session and state.
        n_moves: Markov chain steps after a resampling.
        seed: of the particles of the prior and of their moves.
        state_prior: P1(s), `(n_states,)`; None is uniform.
        offset: whether the last feature is added to the log-odds as it is.

    >>> model = LogisticLinear([[2.0], [-2.0]], [np.eye(1)] * 2)
    >>> model.expected_rewards(np.array([[[1.0], [-1.0]]])).round(3)
    array([[[0.881, 0.119],
            [0.119, 0.881]]])
    """

    summary: ClassVar[Summary] = Summary(
        "clicks, with features",
        "LogisticLinear(weights, covariances)",
        "normal, by particles",
        "weights and their covariance",
        has_features=True,
        sub_gaussian=True,
    )

    prior_fields: ClassVar[tuple[str, ...]] = ("weights", "covariances")

    weights: FloatArray
    covariances: FloatArray
    n_particles: int
    n_moves: int
    seed: int
    state_prior: FloatArray
    offset: bool

    def __init__(
        self,
        weights: ArrayLike,
        covariances: ArrayLike,
        n_particles: int = 256,
        n_moves: int = 1,
        seed: int = 0,
        state_prior: ArrayLike | None = None,
        offset: bool = False,
    ) -> None:
        centre = checks.finite_array("weights", weights, (2,))
        prior = LinearGaussian(centre, 1.0, covariances, state_prior)
        if np.linalg.eigvalsh(prior.covariances).min() <= 0:
            raise ValueError("covariances must be positive definite: moves need a prior density")
        checks.set_fields(
            self,
            **prior._prior_arrays(),
            state_prior=prior.state_prior,
            n_particles=checks.positive_count("n_particles", n_particles),
            n_moves=checks.positive_count("n_moves", n_moves),
            seed=int(seed),
            offset=bool(offset),
        )

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape (n_states, n_features)."""
        weights = 2.0 * rng.standard_normal(shape)
        return cls(weights, [0.25 * np.eye(shape[1])] * shape[0])

    @cached_property
    def spread_bound(self) -> float:
        """A bound for features of length at most one: the logistic curve has slope at most 1/4."""
        largest = float(np.linalg.eigvalsh(self.covariances).max())
        return min(0.25 * float(np.sqrt(largest)), 0.5)

    @property
    def without_particles(self) -> LaplaceClicks:
        return LaplaceClicks(self)

    def vague(self) -> LogisticLinear:
        """Return one state with the covariance of weights within and between states."""
        wide = LinearGaussian(self.weights, 1.0, self.covariances).vague()
        return self._replace(wide._prior_arrays())

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> FloatArray:
        draws = rng.standard_normal((len(state), self.weights.shape[1], 1))
        return self.weights[state] + (self._factors[state] @ draws)[:, :, 0]

    def draw_rewards(
        self, theta: FloatArray, context: Context, rng: np.random.Generator
    ) -> FloatArray:
        means = self.mean_rewards(theta, context)
        return (rng.random(means.shape) < means).astype(np.float64)

    @property
    def _point(self) -> FloatArray:
        return self.weights

    def _draw_prior(self, n: int, rng: np.random.Generator) -> FloatArray:
        draws = rng.standard_normal((self.n_states, n, self.weights.shape[1]))
        return self.weights[:, None] + draws @ self._factors.swapaxes(1, 2)

    def _log_prior(self, theta: FloatArray, state: IntArray) -> FloatArray:
        """Return log P1(theta | s) up to a constant of the state."""
        z = (theta - self.weights[state][:, None]) @ self._inverse_factors[state].swapaxes(1, 2)
        density: FloatArray = -0.5 * np.einsum("kmp,kmp->km", z, z)
        return density

    def _log_density(
        self, theta: FloatArray, features: FloatArray, reward: FloatArray
    ) -> FloatArray:
        """Return -log(1 + exp(-m)) of the margin m = (2 r - 1) x' theta."""
        signed = (features * (2 * reward - 1)[..., None]).swapaxes(1, 2)
        density: FloatArray = self._scores(theta, signed)
        shortfall = np.minimum(density, 0.0)
        np.abs(density, out=density)
        np.negative(density, out=density)
        np.exp(density, out=density)
        np.log1p(density, out=density)
        return np.subtract(shortfall, density, out=density)

    def _mean_rewards(self, theta: FloatArray, features: FloatArray) -> FloatArray:
        from scipy.special import expit

        return expit(self._scores(theta, features.swapaxes(1, 2)))

    def _scores(self, theta: FloatArray, columns: FloatArray) -> FloatArray:
        """Return log-odds `(n, m, k)` for theta (n, m, d) and the columns `(n, n_features, k)`."""
        d = self.weights.shape[1]
        scores: FloatArray = theta @ columns[:, :d]
        if self.offset:
            scores += columns[:, d:]
        return scores

    @cached_property
    def _inverse_factors(self) -> FloatArray:
        return np.linalg.inv(self._factors).astype(np.float64)


# Normal beliefs instead of particles.
#
# Choosing a rank and a number of states scores thousands of users many times; the particle filter
# of the service is too slow for that. Here each state's posterior stays normal: a click is replaced
# by a normal observation with the same mode and curvature along x (Laplace), so an update has rank
# one, as in the Gaussian model. `tests/unit/test_clicks.py` compares it with quadrature.

_NEWTON_STEPS = 5


class LaplaceClicks(LinearClicks):
    """A `LogisticLinear` whose posterior of the weights stays normal, to score users by.

    It has the methods that conditioning on rewards and predicting them take, and no others.
    """

    def __init__(self, model: LogisticLinear) -> None:
        self.weights, self.covariances = model.weights, model.covariances
        self.state_prior, self.offset = model.state_prior, model.offset

    def parameters(self, n_sessions: int) -> LinearPosterior:
        return LinearPosterior(
            np.repeat(self.weights[None], n_sessions, axis=0),
            np.repeat(self._factors[None], n_sessions, axis=0),
        )

    def posterior_rewards(
        self, parameters: LinearPosterior, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Return P(reward = 1), and its variance by the delta method."""
        features, d = checks.required(context), self.weights.shape[1]
        x = features[..., :d]
        score = parameters.mean @ x.swapaxes(1, 2)
        if self.offset:
            score += features[:, None, :, d]
        root = x[:, None] @ parameters.factor
        variance = np.einsum("nskd,nskd->nsk", root, root)
        mean = _probability(score, variance)
        return mean, (mean * (1 - mean)) ** 2 * variance

    def condition(
        self, parameters: LinearPosterior, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, LinearPosterior]:
        """Return the log probability of rewards `(n,)`, 0 or 1, and the posterior after them."""
        from scipy.special import expit

        score, variance, f, gain = self._along(parameters, context, action)
        probability = _probability(score, variance)
        clicked = reward[:, None] == 1
        log_predictive = np.log(np.where(clicked, probability, 1 - probability))
        # The mode of r t - log(1 + e^t) - (t - score)^2 / (2 variance), by Newton's method.
        t = score
        for _ in range(_NEWTON_STEPS):
            rate = expit(t)
            curvature = rate * (1 - rate)
            slope = reward[:, None] - rate - (t - score) / variance
            t = t + slope / (curvature + 1 / variance)
        rate = expit(t)
        noise = 1 / np.maximum(rate * (1 - rate), 1e-12)  # variance of the pseudo-observation
        target = t + (reward[:, None] - rate) * noise
        total = variance + noise
        mean = parameters.mean + gain * ((target - score) / total)[..., None]
        shrink = f / (total + np.sqrt(noise * total))[..., None]
        factor = parameters.factor - np.einsum("nsd,nse->nsde", gain, shrink)
        return log_predictive, LinearPosterior(mean, factor)

    def reward_tails(
        self, parameters: LinearPosterior, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """Return 1 for a click, and the probability of no click for one that was not clicked."""
        played = checks.played(context, action)[:, None]
        no_click = 1 - self.posterior_rewards(parameters, played)[0][:, :, 0]
        return np.where(reward[:, None] == 1, 1.0, no_click), np.ones(len(reward), np.bool_)

    def _along(
        self, parameters: LinearPosterior, context: Context, action: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the mean and variance of the score, L'x and L L'x, for every state."""
        features, d = checks.played(context, action), self.weights.shape[1]
        x = features[:, :d]
        score = (parameters.mean @ x[:, :, None])[..., 0]
        if self.offset:
            score = score + features[:, d:]
        f = (x[:, None, None, :] @ parameters.factor)[:, :, 0]
        gain = (parameters.factor @ f[..., None])[..., 0]
        return score, np.einsum("nsd,nsd->ns", f, f), f, gain


def _probability(score: FloatArray, variance: FloatArray) -> FloatArray:
    """Return E expit(z) for z ~ N(score, variance), about expit(m / sqrt(1 + pi v / 8)).

    MacKay 1992.
    """
    from scipy.special import expit

    return expit(score / np.sqrt(1 + np.pi * variance / 8))
