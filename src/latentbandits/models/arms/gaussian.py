"""Independent actions with Gaussian rewards: the paper's non-contextual model (Algorithm 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.arms.conjugate import Arms, ConjugateArms, Learnable, RewardFacts
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import blocks, log_normal_density, rows
from latentbandits.models.numerics.laws import (
    REALS,
    Student,
    Summary,
    probability_largest,
)
from latentbandits.models.protocol import Context

_LEAST_NOISE = 1e-4  # prior of the noise, worth one reward, as a fraction of the rewards' variance
_ACTION_NOISE = 0.1  # the same for a noise per action
_SURE_OF_NOISE = 1e6  # pseudo-rewards of each action's noise: it is treated as known


class ArmStatistics(NamedTuple):
    """Sufficient statistics of a session, the same for every state and in any order."""

    counts: FloatArray  # (n_sessions, n_actions)
    sums: FloatArray  # (n_sessions, n_actions), of rewards

    def played(self, action: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return count and sum of one action per session, both `(n_sessions,)`."""
        cell = self._cell(action)
        return self.counts.take(cell), self.sums.take(cell)

    def add(self, action: IntArray, reward: FloatArray) -> ArmStatistics:
        """Return the statistics after one more reward of each session."""
        cell, (counts, sums) = self._cell(action), (self.counts.copy(), self.sums.copy())
        counts.put(cell, counts.take(cell) + 1)
        sums.put(cell, sums.take(cell) + reward)
        return ArmStatistics(counts, sums)

    def _cell(self, action: IntArray) -> IntArray:
        """Return the index of each session's action in the flattened arrays."""
        cell: IntArray = action + self.counts.shape[1] * np.arange(len(action))
        return cell


class NormalPrediction(NamedTuple):
    """The predictive distributions of n Gaussian rewards given each state (`Prediction`)."""

    mean: FloatArray  # (n, n_states)
    variance: FloatArray  # of the mean reward, (n, n_states)
    noise: float

    def log_density(self, reward: FloatArray, statistic: FloatArray) -> FloatArray:
        return log_normal_density(reward[:, None] - self.mean, self.variance + self.noise**2)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self.mean, self.variance

    def tails(self, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        from scipy.special import ndtr

        z = (reward - self.mean) / np.sqrt(self.variance + self.noise**2)
        return ndtr(z), ndtr(-z)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class GaussianArms(Arms):
    """Rewards N(theta[s, a], noise^2), with theta[s, a] ~ N(means[s, a], spread[s, a]^2).

    Args:
        means: `(n_states, n_actions)`, or `(n_sessions, n_states, n_actions)` if every session has
            an instance of its own.
        noise: standard deviation of a reward.
        spread: standard deviation of the prior of each mean, one number or like `means`; 0 is
            certain.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1)
    >>> model.n_states, model.n_actions
    (2, 2)
    """

    summary: ClassVar[Summary] = Summary(
        "numbers around a mean, noise known",
        "GaussianArms(means, noise, spread)",
        "normal",
        "means, and how unsure they are",
        sub_gaussian=True,
    )

    has_normal_noise = True
    prior_fields: ClassVar[tuple[str, ...]] = ("means", "spread")

    means: FloatArray
    noise: float
    spread: FloatArray
    state_prior: FloatArray

    def __init__(
        self,
        means: ArrayLike,
        noise: float,
        spread: ArrayLike = 0.0,
        state_prior: ArrayLike | None = None,
    ) -> None:
        centre = checks.finite_array("means", means, (2, 3))
        noise = checks.positive_number("noise", noise)
        spread = checks.non_negative_array("spread", spread, centre.shape)
        prior = checks.state_prior(state_prior, centre)
        checks.set_fields(self, means=centre, noise=noise, spread=spread, state_prior=prior)

    @classmethod
    def reward_family(cls) -> type[Learnable]:
        return Gaussian

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape ([n_sessions,] n_states, n_actions)."""
        return cls(rng.random(shape), 0.5, 0.2)

    def with_actions(self, means: FloatArray, variances: FloatArray) -> Self:
        """Return this model with m more actions at the end; both arguments `(n_states, m)`."""
        return self._longer({"means": means, "spread": np.sqrt(variances)})

    @property
    def n_sessions(self) -> int | None:
        return len(self.means) if self.means.ndim == 3 else None

    @cached_property
    def is_certain(self) -> bool:
        return not self.spread.any()

    @property
    def spread_bound(self) -> float:
        return float(self.spread.max())

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        means = rows(self._means_by_action, action)
        return log_normal_density(reward[:, None] - means, self.noise**2)

    def parameters(self, n_sessions: int) -> ArmStatistics:
        shape = (checks.session_count(n_sessions, self.n_sessions), self.n_actions)
        return ArmStatistics(np.zeros(shape), np.zeros(shape))

    def condition(
        self, parameters: ArmStatistics, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, ArmStatistics]:
        count, total = parameters.played(action)
        mean, variance = self._posterior(
            rows(self._means_by_action, action),
            rows(self._variances_by_action, action),
            count[:, None],
            total[:, None],
        )
        variance += self.noise**2
        log_predictive = log_normal_density(reward[:, None] - mean, variance)
        return log_predictive, parameters.add(action, reward)

    def statistic(self, reward: FloatArray) -> FloatArray:
        """Return 1 and the reward, less the average mean: centred sums lose fewer digits."""
        return np.stack([np.ones_like(reward), reward - self._centre], axis=-1)

    def predicted(self, action: IntArray, totals: FloatArray) -> NormalPrediction:
        """Return the distributions of rewards of actions (n,) after rewards that sum to `totals`.

        `totals` (n, 2) is their number and their sum, less the average mean.
        """
        mean, variance = self._posterior(
            rows(self._means_by_action, action) - self._centre,
            rows(self._variances_by_action, action),
            totals[:, :1],
            totals[:, 1:],
        )
        return NormalPrediction(mean + self._centre, variance, self.noise)

    def posterior_rewards(
        self, parameters: ArmStatistics, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        counts, sums = parameters.counts[:, None], parameters.sums[:, None]
        return self._posterior(self._means, self._variances, counts, sums)

    def sample_rewards(
        self, parameters: ArmStatistics, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        normals = rng.standard_normal((*state.shape, self.means.shape[-1]))
        return self.rewards_from_normals(parameters, context, state, normals, out=normals)

    @property
    def n_normals(self) -> int:
        """Number of standard normal draws from which one draw of all mean rewards is made."""
        return self.n_actions

    def rewards_from_normals(
        self,
        parameters: ArmStatistics,
        context: Context,
        state: IntArray,
        normals: FloatArray,
        out: FloatArray | None = None,
    ) -> FloatArray:
        """Return `sample_rewards` made from given standard normals, `(1 or n, m, n_actions)`.

        The draws are written to `out`, which may be `normals`, if it is given.
        """
        (n, m), (_, n_states, n_actions) = state.shape, self._means.shape
        out = np.empty((n, m, n_actions)) if out is None else out
        if m <= n_states:
            mean, variance = self._posterior(
                rows(self._means, state),
                rows(self._variances, state),
                parameters.counts[:, None],
                parameters.sums[:, None],
            )
            np.multiply(normals, np.sqrt(variance, out=variance), out=out)
            out += mean
        else:  # many draws: one posterior per state is cheaper than one per draw
            mean, variance = self.posterior_rewards(parameters, context)
            deviation = np.sqrt(variance, out=variance)
            for block in blocks(n, m * n_actions):
                chosen = normals if len(normals) == 1 else normals[block]
                np.multiply(chosen, rows(deviation[block], state[block]), out=out[block])
                out[block] += rows(mean[block], state[block])
        return out

    def point_theta(self, state: IntArray) -> FloatArray:
        """Return the parameters that `log_likelihood` takes for users in `state` (n,)."""
        return rows(self._means, state)

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> FloatArray:
        theta = rng.standard_normal((len(state), self.n_actions))
        theta *= np.sqrt(rows(self._variances, state))
        theta += rows(self._means, state)
        return theta

    def regressed(self, state: IntArray, theta: FloatArray) -> FloatArray:
        """Return draws of means as they are if the model's means are estimates with errors.

        Estimates m = mu + N(0, spread^2) vary more than the true means: Var(m) = Var(mu) +
        spread^2. By empirical Bayes mu given m is N(c + (1 - B)(m - c), (1 - B) spread^2), where c
        is the average of all m and B = spread^2 / Var(m), at most 1 (Efron & Morris 1973). A draw
        m + e becomes c + (1 - B)(m - c) + sqrt(1 - B) e, so that its variance is Var(mu).

        The model has one session, or as many as there are draws.

        Args:
            state: `(n,)`, the state of every draw.
            theta: `(n, n_actions)`, drawn around the means of these states.

        >>> model = GaussianArms([[1.0, -1.0]], noise=1.0, spread=0.5)  # Var(m) = 1, B = 1/4
        >>> model.regressed(np.array([0]), np.array([[1.0, -1.0]]))
        array([[ 0.75, -0.75]])
        """
        means = np.broadcast_to(self.means, (len(theta), *self.means.shape[-2:]))
        variance = np.mean(self.spread**2, axis=(-2, -1))
        centre = means.mean(axis=(1, 2))[:, None]
        share = np.minimum(variance / np.maximum(self.means.var(axis=(-2, -1)), 1e-300), 1.0)
        kept = 1.0 - np.broadcast_to(share, (len(theta),))[:, None]
        user_means = means[np.arange(len(theta)), state]
        result: FloatArray = (
            centre + kept * (user_means - centre) + np.sqrt(kept) * (theta - user_means)
        )
        return result

    def mean_rewards(self, theta: FloatArray, context: Context) -> FloatArray:
        return theta

    def draw_rewards(
        self, theta: FloatArray, context: Context, rng: np.random.Generator
    ) -> FloatArray:
        return theta + self.noise * rng.standard_normal(theta.shape)

    def log_reward_density(
        self, theta: FloatArray, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        return log_normal_density(reward - theta[np.arange(len(action)), action], self.noise**2)

    def probability_best(
        self,
        parameters: ArmStatistics,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> FloatArray:
        mean, variance = self.posterior_rewards(parameters, context)
        return probability_largest(mean, np.sqrt(variance), eligible, weights)

    def vague(self) -> GaussianArms:
        axes = (-2, -1)
        mean = self.means.mean(axis=axes, keepdims=True)
        variance = np.square(self.spread).mean(axis=axes, keepdims=True)
        variance += self.means.var(axis=axes, keepdims=True)
        means = np.repeat(mean, self.n_actions, axis=-1)
        return GaussianArms(means, self.noise, np.sqrt(variance))

    def _posterior(
        self, mean: FloatArray, variance: FloatArray, count: FloatArray, total: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return M and K of Algorithm 4 over all rounds (erratum E1); variance may be 0."""
        noise = self.noise**2
        scale = variance / (variance * count + noise)
        posterior_mean = total - count * mean
        posterior_mean *= scale
        posterior_mean += mean
        scale *= noise
        return posterior_mean, scale

    @cached_property
    def _centre(self) -> float:
        return float(self.means.mean())

    @cached_property
    def _means(self) -> FloatArray:
        return self.means if self.means.ndim == 3 else self.means[None]

    @cached_property
    def _variances(self) -> FloatArray:
        return self.spread.reshape(self._means.shape) ** 2

    @cached_property
    def _means_by_action(self) -> FloatArray:
        return np.ascontiguousarray(self._means.swapaxes(1, 2))

    @cached_property
    def _variances_by_action(self) -> FloatArray:
        return np.ascontiguousarray(self._variances.swapaxes(1, 2))


# Learning.


def log_normaliser(phi: FloatArray) -> FloatArray:
    """Return the log normaliser of N(a / b, 1 / b), up to a constant; phi (..., 2) is a and b."""
    return 0.5 * phi[..., 0] ** 2 / phi[..., 1] - 0.5 * np.log(phi[..., 1])


def expected(phi: FloatArray) -> FloatArray:
    """Return E[theta] and -E[theta^2] / 2, the gradient of `log_normaliser`."""
    mean = phi[..., 0] / phi[..., 1]
    return np.stack([mean, -0.5 * (mean**2 + 1 / phi[..., 1])], axis=-1)


@dataclass(frozen=True, eq=False)
class Gaussian(Learnable):
    """Gaussian rewards, as learning sees them: t(r) = (1, (r - `shift`) / `scale`).

    theta[s, a] is N(m[a], tau^2) with 1 / tau^2 the strength; phi is (precision x mean,
    precision). The noise sigma^2 is a parameter: one number, or one for each action
    (`noise_by_action`), or `known` (in original units). `estimated` is the noise of a fit.
    """

    family_name: ClassVar[str] = "gaussian"

    shift: float = 0.0
    scale: float = 1.0
    noise_by_action: bool = False
    known: float | None = None
    estimated: FloatArray | None = None  # (n_actions,)

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        return np.zeros(rewards.shape, np.bool_)

    @classmethod
    def takes(cls) -> str:
        return str(REALS)

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        return cls(shift=float(rewards.mean()), scale=float(rewards.std()) or 1.0)

    @classmethod
    def for_facts(cls, facts: RewardFacts) -> Self:
        return cls(shift=facts.mean, scale=facts.deviation or 1.0)

    @property
    def noise_is_free(self) -> bool:
        return self.known is None

    def with_noise(self, known: float | None) -> Self:
        return replace(self, known=known)

    def with_noise_by_action(self) -> Self:
        return replace(self, noise_by_action=True)

    def at_noise(self, noise: FloatArray) -> Self:
        return replace(self, estimated=noise)

    def standardised(self, rewards: FloatArray) -> FloatArray:
        return (rewards - self.shift) / self.scale

    def statistic(self, reward: FloatArray) -> FloatArray:
        units = self.standardised(reward)
        return np.stack([np.ones_like(units), units], axis=-1)

    def squares(self, reward: FloatArray) -> FloatArray:
        return self.standardised(reward) ** 2

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def allowed_means(self, means: FloatArray) -> FloatArray:
        return self.standardised(means)

    def log_base_measure(self, reward: FloatArray) -> float:
        """Return the log base measure of densities in original units."""
        return -0.5 * float(np.log(2 * np.pi)) - float(np.log(self.scale))

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        return super().prior(centre[:, ::-1], strength)

    log_normaliser = staticmethod(log_normaliser)
    expected = staticmethod(expected)

    def coefficients(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        """Return -E[theta^2] / (2 sigma^2) for the count and E[theta] / sigma^2 for the sum."""
        return self.expected(phi)[..., ::-1] / noise[:, None, :, None]

    def posterior(self, prior: FloatArray, sums: FloatArray, noise: FloatArray) -> FloatArray:
        return prior + sums[..., ::-1] / noise[:, None, :, None]

    def first_noise(self, totals: FloatArray, n_starts: int) -> FloatArray:
        start = 0.7 if self.known is None else (self.known / self.scale) ** 2
        return np.full((n_starts, totals.shape[0]), start)

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        if self.known is not None:
            return noise
        expected = self.expected(phi)  # sum E[(r - theta)^2] = squares - 2 sum r E[theta] + ...
        fit = (sums[..., ::-1] * expected).sum(axis=(1, 3))
        error = np.maximum(squares - 2 * fit, 0.0)
        counts = sums[..., 0].sum(axis=1)
        if self.noise_by_action:
            by_action: FloatArray = (error + _ACTION_NOISE) / (counts + 1)
            return by_action
        shared = (error.sum(axis=1) + _LEAST_NOISE) / (counts.sum(axis=1) + 1)
        return np.broadcast_to(shared[:, None], noise.shape)

    def log_constant(
        self, totals: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Return the terms of the noise: its part of every log density, and its weak prior."""
        value: FloatArray = -0.5 * (totals[..., 0] * np.log(noise) + squares / noise).sum(axis=1)
        if self.known is not None:
            return value
        if self.noise_by_action:
            value -= 0.5 * (np.log(noise) + _ACTION_NOISE / noise).sum(axis=1)
        else:
            value -= 0.5 * (np.log(noise[:, 0]) + _LEAST_NOISE / noise[:, 0])
        return value

    @property
    def unit(self) -> float:
        return self.scale

    def mean_statistic(self, phi: FloatArray) -> FloatArray:
        return phi[..., 0] / phi[..., 1]

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.shift + self.scale * self.mean_statistic(phi), self.scale**2 / phi[..., 1]

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        assert self.estimated is not None
        return np.broadcast_to(self.scale**2 * self.estimated, phi.shape[:-1])

    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Any:
        means, reward_variance = self.moments(phi)[0], self.reward_variance(phi)
        if self.noise_by_action:
            # The prior variance of a mean is E[sigma^2] / mean_count.
            mean_variance = reward_variance * _SURE_OF_NOISE / (_SURE_OF_NOISE - 2)
            return GaussianArmsUnknownNoise(
                means, np.sqrt(reward_variance), mean_variance / variance, _SURE_OF_NOISE, shares
            )
        return GaussianArms(means, float(np.sqrt(reward_variance[0, 0])), np.sqrt(variance), shares)


# Gaussian rewards of unknown noise: normal-inverse-gamma priors.

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
        scale = np.broadcast_to(noise_scale, centre.shape)
        checks.set_positive(
            self, state_prior, noise_scale=scale, mean_count=mean_count, noise_count=noise_count
        )
        checks.above("noise_count", self.noise_count, 2, "so that the mean reward has a variance")
        checks.set_fields(self, means=centre)

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
        variance = scale**2 * count / (count - 2)  # E[sigma^2]; a mean has it / mean_count
        mean_count = variance / np.maximum(variances, 1e-12)
        return dict(zip(self.prior_fields, (means, scale, mean_count, count), strict=True))

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
