"""Rewards that are zero or positive amounts: a hurdle, then a log-normal or a gamma amount.

P(r = 0) = 1 - p, and a positive reward has the density of the amount (Cragg 1971, Econometrica 39,
829-844; Mullahy 1986, Journal of Econometrics 33, 341-365):

    log-normal: log r ~ N(log x - sigma^2 / 2, sigma^2)     gamma: r ~ Gamma(k, rate k / x)

x is the mean of a positive reward, so the mean reward is p x. The noise of an amount (sigma, or
k^-1/2) is known; p has a beta prior, and the amount's parameter a normal or a gamma prior. The
priors are independent, and so are the posteriors: zeros and positive rewards update p, and only
positive rewards update x.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.arms import dirichlet, gamma, gaussian
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.numerics.arrays import log_normal_density
from latentbandits.models.numerics.laws import Gamma, Interval, Summary

_LEAST_NOISE = 1e-4  # prior of sigma^2, worth one reward
_POWERS = (0.05, 1e4)  # bounds of the estimate of k
_BISECTIONS = 80


class Hurdle(NamedTuple):
    """Parameters of some actions, arrays of one shape."""

    chance: FloatArray  # p, of a positive reward
    amount: FloatArray  # x, the mean of a positive reward


class HurdleArms(ConjugateArms):
    """Base class of both families; phi is (positive rewards, zeros, phi of the amount).

    Learning sums four statistics of a reward: (1 if positive, 1 if zero, log r, r). The two with
    the indices `amount_terms`, divided by the variance of the noise, are added to phi of the
    amount. The noise of an amount is a number that all states and actions share.
    """

    support = Interval(low=0.0, atoms=(0.0,))
    counts_and_sums = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0])
    n_parameters = 2
    amount_terms: ClassVar[tuple[int, int]]

    alpha: FloatArray
    beta: FloatArray

    # Methods that each kind of amount implements. Here phi `(..., 2)` is that of the amount.

    @property
    @abstractmethod
    def noise_variance(self) -> float:
        """The variance of the noise: sigma^2, or 1 / k."""

    amount_prior: ClassVar[Any]
    """The module of the amount's prior: it has `log_normaliser` and `expected`."""

    @abstractmethod
    def _log_amount_base(self, reward: FloatArray) -> FloatArray:
        """Return the log base measure of positive rewards."""

    @abstractmethod
    def _amount_prior(self, count: FloatArray, centre: FloatArray) -> FloatArray:
        """Return phi of the pooled prior worth `count` positive rewards, at mean statistics."""

    @abstractmethod
    def _amount_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return E[x] and E[x^2]."""

    @abstractmethod
    def _amount_fields(
        self, amount: FloatArray, count: FloatArray
    ) -> tuple[dict[str, FloatArray], FloatArray]:
        """Return the prior fields worth `count` positive rewards, with E[x] = `amount`, and E[x^2].

        Raise no error for any count above zero.
        """

    @abstractmethod
    def _sample_amount(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw x."""

    @abstractmethod
    def _log_amount_density(self, amount: FloatArray, reward: FloatArray) -> FloatArray:
        """Return the log density of a positive reward."""

    @abstractmethod
    def _draw_amount(self, amount: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw a positive reward for every x."""

    @abstractmethod
    def _amounts_up_to(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(R <= reward) and P(R > reward) of a positive reward R, for positive rewards."""

    @property
    def squared_noise(self) -> float:
        """The variance of a positive reward, divided by the square of its mean."""
        return self.noise_variance

    # What a model of arms needs.

    @property
    def noise(self) -> float:
        """The largest standard deviation of a reward; there is no sub-Gaussian scale."""
        return float(np.sqrt(self.reward_variance(self.prior_hyperparameters).max()))

    def statistic(self, reward: FloatArray) -> FloatArray:
        terms = self.summed(reward)
        terms[..., 2:] = terms[..., self.amount_terms] / self.noise_variance
        return terms

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        log_z: FloatArray = dirichlet.log_normaliser(phi[..., :2])
        log_z += self.amount_prior.log_normaliser(phi[..., 2:])
        return log_z

    def log_base_measure(self, reward: FloatArray) -> FloatArray:
        positive = reward > 0
        return np.where(positive, self._log_amount_base(np.where(positive, reward, 1.0)), 0.0)

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        first, second = self._amount_moments(phi[..., 2:])
        chance, square = _chance_moments(phi[..., 0], phi[..., 1])
        mean = chance * first
        return mean, np.maximum(square * second - mean**2, 0.0)

    def law(self, phi: FloatArray) -> Gamma:
        """Return the gamma law of the same mean and variance; the product has no closed form."""
        mean, variance = self.moments(phi)
        return Gamma(mean**2 / variance, mean / variance)

    def sample(self, phi: FloatArray, rng: np.random.Generator) -> Hurdle:
        draws = dirichlet.unnormalised(phi[..., :2], rng)
        return Hurdle(draws[..., 0] / draws.sum(axis=-1), self._sample_amount(phi[..., 2:], rng))

    def point(self, phi: FloatArray) -> Hurdle:
        return Hurdle(
            phi[..., 0] / (phi[..., 0] + phi[..., 1]), self._amount_moments(phi[..., 2:])[0]
        )

    def mean_reward(self, theta: Hurdle) -> FloatArray:
        return theta.chance * theta.amount

    def log_density(self, theta: Hurdle, reward: FloatArray) -> FloatArray:
        positive = reward > 0
        amount = np.where(positive, reward, 1.0)
        density = np.log(theta.chance) + self._log_amount_density(theta.amount, amount)
        return np.where(positive, density, np.log1p(-theta.chance))

    def draw(self, theta: Hurdle, rng: np.random.Generator) -> FloatArray:
        positive = rng.random(theta.chance.shape) < theta.chance
        return np.where(positive, self._draw_amount(theta.amount, rng), 0.0)

    def distribution(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        chance = phi[..., 0] / (phi[..., 0] + phi[..., 1])
        positive = reward > 0
        below, above = self._amounts_up_to(phi[..., 2:], np.where(positive, reward, 1.0))
        zero = np.where(reward >= 0, 1 - chance, 0.0)
        up_to = np.where(positive, 1 - chance + chance * below, zero)
        return up_to, np.where(positive, chance * above, 1 - zero)

    def vague(self) -> Self:
        mean, deviation = self._overall()
        chance = self._one_state(
            self.point(self.prior_hyperparameters).chance.mean(axis=(1, 2), keepdims=True)
        )
        return self._replace(self._fields(chance, mean / chance, deviation**2))

    def _priors_of(self, means: FloatArray, variances: FloatArray) -> dict[str, FloatArray]:
        """Return the average action's chance of a positive reward, and amounts of these means."""
        chance = (self.alpha / (self.alpha + self.beta)).mean(axis=1, keepdims=True)
        chance = np.broadcast_to(chance, means.shape)
        return self._fields(chance, means / chance, variances)

    def _fields(
        self, chance: FloatArray, amount: FloatArray, variance: FloatArray
    ) -> dict[str, FloatArray]:
        """Return the prior fields at p and x whose mean reward has this variance.

        Both priors are worth the same rewards, whose number is found by bisection. A variance above
        the variance of one positive reward is replaced by the latter.
        """
        low, high = -np.log(chance), np.full_like(chance, np.log(1e15))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            strength = np.exp(middle)
            square = _chance_moments(strength * chance, strength * (1 - chance))[1]
            second = self._amount_fields(amount, strength * chance)[1]
            wide = square * second - (chance * amount) ** 2 > variance
            low, high = np.where(wide, middle, low), np.where(wide, high, middle)
        strength = np.exp(low)
        fields = self._amount_fields(amount, strength * chance)[0]
        return {"alpha": strength * chance, "beta": strength * (1 - chance)} | fields

    # Learning.

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        family = super().for_rewards(rewards)
        if (rewards > 0).all() or not (rewards > 0).any():
            raise ValueError(
                f"{cls.family_name} rewards are zeros and positive amounts; these are all "
                + ("positive" if (rewards > 0).all() else "zero")
            )
        return family

    def summed(self, reward: FloatArray) -> FloatArray:
        positive = (reward > 0).astype(np.float64)
        logs = np.log(np.where(reward > 0, reward, 1.0))
        return np.stack([positive, 1 - positive, logs, reward], axis=-1)

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        counts = super().prior(centre[:, :2], strength)
        return np.concatenate([counts, self._amount_prior(counts[..., 0], centre)], axis=-1)

    def expected(self, phi: FloatArray) -> FloatArray:
        parts = [dirichlet.expected_log(phi[..., :2]), self.amount_prior.expected(phi[..., 2:])]
        return np.concatenate(parts, axis=-1)

    def coefficients(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        expected, scale = self.expected(phi), noise[:, None, :]
        coefficients = expected.copy()
        coefficients[..., 2:] = 0.0
        for i, term in enumerate(self.amount_terms):
            coefficients[..., term] += expected[..., 2 + i] / scale
        return coefficients

    def posterior(self, prior: FloatArray, sums: FloatArray, noise: FloatArray) -> FloatArray:
        amounts = sums[..., self.amount_terms] / noise[:, None, :, None]
        phi: FloatArray = prior + np.concatenate([sums[..., :2], amounts], axis=-1)
        return phi

    @property
    def smoothing(self) -> FloatArray:  # type: ignore[override]
        """Half a zero, and half a positive reward of 1."""
        both: FloatArray = 0.5 * self.summed(np.array([0.0, 1.0])).sum(axis=0)
        return both

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        chance, amount = self.point(phi)
        mean = chance * amount
        return mean * amount * (1 + self.squared_noise) - mean**2

    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Self:
        return self._replace(self._fields(*self.point(phi), variance), shares)

    def first_noise(self, totals: FloatArray, n_starts: int) -> FloatArray:
        return np.full((n_starts, totals.shape[0]), 0.7)


def _chance_moments(ones: FloatArray, zeros: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of a beta variable, and of its square."""
    total = ones + zeros
    mean = ones / total
    return mean, mean * (ones + 1) / (total + 1)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class HurdleLogNormalArms(HurdleArms):
    """Rewards are zero with probability 1 - p[s, a], else log-normal.

    p ~ Beta(alpha, beta); the logarithm of a positive reward is N(mu, log_noise^2) with
    mu ~ N(log_means, log_spread^2).

    Args:
        alpha: the number of positive rewards that the prior of p is worth, `(n_states, n_actions)`
            or with a session axis first.
        beta: the number of zeros, like `alpha`.
        log_means: prior means of mu, like `alpha`.
        log_spread: standard deviations of the prior of mu, above zero, like `alpha`.
        log_noise: standard deviation of the logarithm of a positive reward.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> model = HurdleLogNormalArms([[2.0]], [[6.0]], [[1.0]], [[0.1]], log_noise=0.5)
    >>> model.expected_rewards(None)[0].round(3)
    array([[0.774]])
    """

    summary: ClassVar[Summary] = Summary(
        "zero, or an amount with a heavy tail: spending",
        "HurdleLogNormalArms(alpha, beta, log_means, log_spread, log_noise)",
        "beta, and normal",
        "amounts and zeros that the prior is worth; means of log amounts, and how unsure they are",
    )

    family_name: ClassVar[str] = "hurdle-lognormal"
    prior_fields: ClassVar[tuple[str, ...]] = ("alpha", "beta", "log_means", "log_spread")
    amount_terms: ClassVar[tuple[int, int]] = (2, 0)
    amount_prior: ClassVar[Any] = gaussian

    alpha: FloatArray
    beta: FloatArray
    log_means: FloatArray
    log_spread: FloatArray
    log_noise: float
    state_prior: FloatArray

    def __init__(
        self,
        alpha: ArrayLike,
        beta: ArrayLike,
        log_means: ArrayLike,
        log_spread: ArrayLike,
        log_noise: float,
        state_prior: ArrayLike | None = None,
    ) -> None:
        means = checks.finite_array("log_means", log_means, (2, 3))
        alpha = np.broadcast_to(alpha, means.shape)
        checks.set_positive(self, state_prior, alpha=alpha, beta=beta, log_spread=log_spread)
        log_noise = checks.positive_number("log_noise", log_noise)
        checks.set_fields(self, log_means=means, log_noise=log_noise)

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape ([n_sessions,] n_states, n_actions)."""
        chance = rng.uniform(0.2, 0.8, shape)
        return cls(20 * chance, 20 * (1 - chance), rng.normal(0.0, 0.5, shape), 0.2, 0.5)

    @classmethod
    def _any(cls) -> Self:
        return cls([[1.0]], [[1.0]], [[0.0]], [[1.0]], 1.0)

    @property
    def squared_noise(self) -> float:
        return float(np.expm1(self.log_noise**2))

    @property
    def noise_variance(self) -> float:
        return self.log_noise**2

    def at_noise(self, noise: FloatArray) -> Self:
        return type(self)(**self._prior_arrays(), log_noise=float(np.sqrt(noise[0])))

    def _hyperparameters(self) -> FloatArray:
        precision = self.log_spread**-2
        return np.stack([self.alpha, self.beta, precision * self.log_means, precision], axis=-1)

    def _log_amount_base(self, reward: FloatArray) -> FloatArray:
        logs = np.log(reward)
        return log_normal_density(logs, np.asarray(self.noise_variance)) - logs

    def _amount_prior(self, count: FloatArray, centre: FloatArray) -> FloatArray:
        """Return a prior worth one reward more, so that the mean of an amount is finite."""
        precision = count + 1
        return np.stack([precision * centre[:, 2] / centre[:, 0], precision], axis=-1)

    def _amount_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, variance = phi[..., 0] / phi[..., 1], 1 / phi[..., 1]
        first: FloatArray = np.exp(mean + 0.5 * (variance + self.log_noise**2))
        return first, first**2 * np.exp(variance)

    def _amount_fields(
        self, amount: FloatArray, count: FloatArray
    ) -> tuple[dict[str, FloatArray], FloatArray]:
        variance = self.log_noise**2 / count
        means = np.log(amount) - 0.5 * (variance + self.log_noise**2)
        second: FloatArray = amount**2 * np.exp(variance)
        return {"log_means": means, "log_spread": np.sqrt(variance)}, second

    def _sample_amount(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        logs = rng.standard_normal(phi.shape[:-1]) / np.sqrt(phi[..., 1])
        logs += phi[..., 0] / phi[..., 1] + 0.5 * self.log_noise**2
        return np.exp(logs)

    def _log_amount_density(self, amount: FloatArray, reward: FloatArray) -> FloatArray:
        logs, square = np.log(reward), self.log_noise**2
        return log_normal_density(logs - np.log(amount) + square / 2, square) - logs

    def _draw_amount(self, amount: FloatArray, rng: np.random.Generator) -> FloatArray:
        noise = self.log_noise
        factor = np.exp(noise * rng.standard_normal(amount.shape) - noise**2 / 2)
        return amount * factor

    def _amounts_up_to(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        from scipy.special import ndtr

        deviation = np.sqrt(1 / phi[..., 1] + self.log_noise**2)
        z = (np.log(reward) - phi[..., 0] / phi[..., 1]) / deviation
        return ndtr(z), ndtr(-z)

    def squares(self, reward: FloatArray) -> FloatArray:
        return self.summed(reward)[..., 2] ** 2

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        expected = self.expected(phi)
        fit = (sums[..., 2] * expected[..., 2] + sums[..., 0] * expected[..., 3]).sum(axis=(1, 2))
        error = np.maximum(squares.sum(axis=1) - 2 * fit, 0.0)
        shared = (error + _LEAST_NOISE) / (sums[..., 0].sum(axis=(1, 2)) + 1)
        return np.broadcast_to(shared[:, None], noise.shape)

    def log_constant(
        self, totals: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Return the terms of sigma^2, relative to sigma^2 = 1, which the base measure has."""
        value: FloatArray = -0.5 * (totals[..., 0] * np.log(noise)).sum(axis=1)
        value -= 0.5 * (squares * (1 / noise - 1)).sum(axis=1)
        return value - 0.5 * (np.log(noise[:, 0]) + _LEAST_NOISE / noise[:, 0])


@dataclass(frozen=True, eq=False, init=False, repr=False)
class HurdleGammaArms(HurdleArms):
    """Rewards are zero with probability 1 - p[s, a], else gamma with the mean 1 / theta[s, a].

    p ~ Beta(alpha, beta); a positive reward is Gamma(power, rate power x theta) with
    theta ~ Gamma(shape, scale). `ExponentialArms` has the same prior, and `power` 1.

    Args:
        alpha: the number of positive rewards that the prior of p is worth, `(n_states, n_actions)`
            or with a session axis first.
        beta: the number of zeros, like `alpha`.
        shape: above 2, so that the mean reward has a variance; like `alpha`.
        scale: above zero, like `alpha`; the prior mean of an amount is scale / (shape - 1).
        power: the shape of a positive reward's gamma distribution.
        state_prior: P1(s), `(n_states,)` or `(n_sessions, n_states)`; None is uniform.

    >>> HurdleGammaArms([[2.0]], [[6.0]], [[5.0]], [[8.0]], power=3.0).expected_rewards(None)[0]
    array([[0.5]])
    """

    summary: ClassVar[Summary] = Summary(
        "zero, or an amount: sales, minutes watched",
        "HurdleGammaArms(alpha, beta, shape, scale, power)",
        "beta, and gamma on the rate",
        "amounts and zeros that the prior is worth; amounts seen, and their sum",
    )

    family_name: ClassVar[str] = "hurdle-gamma"
    prior_fields: ClassVar[tuple[str, ...]] = ("alpha", "beta", "shape", "scale")
    amount_terms: ClassVar[tuple[int, int]] = (0, 3)
    amount_prior: ClassVar[Any] = gamma

    alpha: FloatArray
    beta: FloatArray
    shape: FloatArray
    scale: FloatArray
    power: float
    state_prior: FloatArray

    def __init__(
        self,
        alpha: ArrayLike,
        beta: ArrayLike,
        shape: ArrayLike,
        scale: ArrayLike,
        power: float,
        state_prior: ArrayLike | None = None,
    ) -> None:
        checks.set_positive(self, state_prior, alpha=alpha, beta=beta, shape=shape, scale=scale)
        checks.above("shape", self.shape, 2, "so that the mean reward has a variance")
        checks.set_fields(self, power=checks.positive_number("power", power))

    @classmethod
    def random(cls, rng: np.random.Generator, *shape: int) -> Self:
        """Return a random problem of shape ([n_sessions,] n_states, n_actions)."""
        chance = rng.uniform(0.2, 0.8, shape)
        return cls(20 * chance, 20 * (1 - chance), 12.0, rng.uniform(5.0, 30.0, shape), 2.0)

    @classmethod
    def _any(cls) -> Self:
        return cls([[1.0]], [[1.0]], [[3.0]], [[2.0]], 1.0)

    @property
    def noise_variance(self) -> float:
        return 1 / self.power

    def at_noise(self, noise: FloatArray) -> Self:
        return type(self)(**self._prior_arrays(), power=float(1 / noise[0]))

    def _log_amount_base(self, reward: FloatArray) -> FloatArray:
        return _power_terms(self.power) + (self.power - 1) * np.log(reward)

    def _amount_prior(self, count: FloatArray, centre: FloatArray) -> FloatArray:
        """Return a prior worth two rewards more, so that the variance of an amount is finite."""
        worth = count + 2
        return np.stack([worth + 1, worth * centre[:, 3] / centre[:, 0]], axis=-1)

    def _amount_moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        first = phi[..., 1] / (phi[..., 0] - 1)
        return first, first**2 * (phi[..., 0] - 1) / (phi[..., 0] - 2)

    def _amount_fields(
        self, amount: FloatArray, count: FloatArray
    ) -> tuple[dict[str, FloatArray], FloatArray]:
        shape = 2 + self.power * count
        second: FloatArray = amount**2 * (shape - 1) / (shape - 2)
        return {"shape": shape, "scale": amount * (shape - 1)}, second

    def _sample_amount(self, phi: FloatArray, rng: np.random.Generator) -> FloatArray:
        return phi[..., 1] / rng.standard_gamma(phi[..., 0])

    def _log_amount_density(self, amount: FloatArray, reward: FloatArray) -> FloatArray:
        relative = reward / amount
        density: FloatArray = self.power * (np.log(relative) - relative) - np.log(reward)
        return density + _power_terms(self.power)

    def _draw_amount(self, amount: FloatArray, rng: np.random.Generator) -> FloatArray:
        return amount * rng.standard_gamma(self.power, amount.shape) / self.power

    def _amounts_up_to(self, phi: FloatArray, reward: FloatArray) -> tuple[FloatArray, FloatArray]:
        from scipy.special import betainc

        weighted = self.power * reward
        share = weighted / (weighted + phi[..., 1])
        below = betainc(self.power, phi[..., 0], share)
        above = betainc(phi[..., 0], self.power, 1 - share)
        return np.asarray(below, np.float64), np.asarray(above, np.float64)

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Return 1 / k, where k solves log k - digamma(k) = 1 less the average log density."""
        from scipy.special import digamma

        expected = self.expected(phi)
        fit = sums[..., 0] * expected[..., 2] + sums[..., 3] * expected[..., 3] + sums[..., 2]
        wanted = -1 - fit.sum(axis=(1, 2)) / sums[..., 0].sum(axis=(1, 2))
        low, high = (np.full(len(wanted), np.log(bound)) for bound in _POWERS)
        for _ in range(_BISECTIONS):  # log k - digamma(k) falls with k
            middle = (low + high) / 2
            above = middle - digamma(np.exp(middle)) > wanted
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.broadcast_to(np.exp(-low)[:, None], noise.shape)

    def log_constant(
        self, totals: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        power = 1 / noise
        terms = totals[..., 0] * _power_terms(power) + (power - 1) * totals[..., 2]
        value: FloatArray = terms.sum(axis=1)
        return value


def _power_terms(power: FloatArray | float) -> FloatArray:
    """Return k log k - log Gamma(k)."""
    from scipy.special import gammaln

    return power * np.log(power) - gammaln(power)
