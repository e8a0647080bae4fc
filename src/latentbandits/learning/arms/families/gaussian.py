"""Gaussian rewards with normal priors; the noise is shared by all actions or one per action."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from latentbandits.learning.arms.families.family import ArmsModel, Family
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.arms.gaussian_unknown_noise import GaussianArmsUnknownNoise
from latentbandits.models.checks import BoolArray, FloatArray

_LEAST_NOISE = 1e-4  # prior of the noise, worth one reward, as a fraction of the rewards' variance
_ACTION_NOISE = 0.1  # the same for a noise per action
_SURE_OF_NOISE = 1e6  # pseudo-rewards of each action's noise: it is treated as known


@dataclass(frozen=True)
class Gaussian(Family):
    """Gaussian rewards: t(r) = (1, (r - `shift`) / `scale`).

    theta[s, a] is N(m[a], tau^2) with 1 / tau^2 the strength; phi is (precision x mean,
    precision). The noise sigma^2 is a parameter: one number, or one for each action
    (`noise_by_action`), or `known` (in original units).
    """

    name: ClassVar[str] = "gaussian"
    support: ClassVar[str] = "numbers"
    discrete: ClassVar[bool] = False
    n_statistics: int = 2
    shift: float = 0.0
    scale: float = 1.0
    noise_by_action: bool = False
    known: float | None = None

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        return np.zeros(rewards.shape, np.bool_)

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        return cls(shift=float(rewards.mean()), scale=float(rewards.std()) or 1.0)

    def with_noise(self, known: float | None) -> Gaussian:
        return replace(self, known=known)

    def with_noise_by_action(self) -> Gaussian:
        return replace(self, noise_by_action=True)

    def standardised(self, rewards: FloatArray) -> FloatArray:
        units: FloatArray = (rewards - self.shift) / self.scale
        return units

    def statistics(self, rewards: FloatArray) -> FloatArray:
        units = self.standardised(rewards)
        return np.stack([np.ones_like(units), units], axis=-1)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def allowed_means(self, means: FloatArray) -> FloatArray:
        return self.standardised(means)

    def log_base(self, rewards: FloatArray) -> float:
        """Return the log base measure of densities in original units."""
        return -len(rewards) * (0.5 * float(np.log(2 * np.pi)) + float(np.log(self.scale)))

    def centre(self, totals: FloatArray) -> FloatArray:
        overall = totals[:, 1].sum() / totals[:, 0].sum()
        smoothed: FloatArray = (totals[:, 1] + overall) / (totals[:, 0] + 1)
        return smoothed

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        precision = np.broadcast_to(strength[:, None, None], (len(strength), 1, len(centre)))
        return np.stack([precision * centre, precision], axis=-1)

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        log_z: FloatArray = 0.5 * phi[..., 0] ** 2 / phi[..., 1] - 0.5 * np.log(phi[..., 1])
        return log_z

    def expected(self, phi: FloatArray) -> FloatArray:
        """Return E[theta] and -E[theta^2] / 2."""
        mean = phi[..., 0] / phi[..., 1]
        return np.stack([mean, -0.5 * (mean**2 + 1 / phi[..., 1])], axis=-1)

    def coefficients(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        """Return -E[theta^2] / (2 sigma^2) for the count and E[theta] / sigma^2 for the sum."""
        coefficients: FloatArray = self.expected(phi)[..., ::-1] / noise[:, None, :, None]
        return coefficients

    def posterior(self, prior: FloatArray, sums: FloatArray, noise: FloatArray) -> FloatArray:
        phi: FloatArray = prior + sums[..., ::-1] / noise[:, None, :, None]
        return phi

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
        self, counts: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Return the terms of the noise: its part of every log density, and its weak prior."""
        value: FloatArray = -0.5 * (counts * np.log(noise) + squares / noise).sum(axis=1)
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
        mean: FloatArray = phi[..., 0] / phi[..., 1]
        return mean

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = self.shift + self.scale * phi[..., 0] / phi[..., 1]
        return mean, self.scale**2 / phi[..., 1]

    def reward_variance(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        return np.broadcast_to(self.scale**2 * noise, phi.shape[:-1])

    def within(self, phi: FloatArray, noise: FloatArray, strength: float) -> FloatArray:
        return self.reward_variance(phi, noise) / strength

    def model(
        self, phi: FloatArray, variance: FloatArray, shares: FloatArray, noise: FloatArray
    ) -> ArmsModel:
        means, reward_variance = self.moments(phi)[0], self.reward_variance(phi, noise)
        if self.noise_by_action:
            # The prior variance of a mean is E[sigma^2] / mean_count.
            mean_variance = reward_variance * _SURE_OF_NOISE / (_SURE_OF_NOISE - 2)
            return GaussianArmsUnknownNoise(
                means, np.sqrt(reward_variance), mean_variance / variance, _SURE_OF_NOISE, shares
            )
        return GaussianArms(means, float(np.sqrt(reward_variance[0, 0])), np.sqrt(variance), shares)
