"""Exponential rewards (waiting times, amounts) with gamma priors on their rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from latentbandits.learning.arms.families.family import Family
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.arms.exponential import ExponentialArms
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics import gamma


@dataclass(frozen=True)
class Exponential(Family):
    """Exponential rewards: t(r) = (1, r), and the prior of the rate is Gamma(kappa + 1, kappa m).

    The prior mean of the mean reward 1 / rate is then m.
    """

    name: ClassVar[str] = "exponential"
    support: ClassVar[str] = "not negative"
    discrete: ClassVar[bool] = False
    n_statistics: int = 2

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        cls._refuse_outside(rewards)
        if not (rewards > 0).any():
            raise LogError("--rewards exponential needs rewards above 0; all of them are 0")
        return cls()

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        outside: BoolArray = rewards < 0
        return outside

    def statistics(self, rewards: FloatArray) -> FloatArray:
        return np.stack([np.ones_like(rewards), rewards], axis=-1)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def log_base(self, rewards: FloatArray) -> float:
        return 0.0

    def centre(self, totals: FloatArray) -> FloatArray:
        overall = totals[:, 1].sum() / totals[:, 0].sum()
        smoothed: FloatArray = (totals[:, 1] + overall) / (totals[:, 0] + 1)
        return smoothed

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        kappa = strength[:, None, None]
        shape = np.broadcast_to(kappa + 1, (len(strength), 1, len(centre)))
        return np.stack([shape, kappa * centre], axis=-1)

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        return gamma.log_normaliser(phi)

    def expected(self, phi: FloatArray) -> FloatArray:
        """Return E[log rate] and -E[rate]."""
        from scipy.special import digamma

        shape, scale = phi[..., 0], phi[..., 1]
        return np.stack([digamma(shape) - np.log(scale), -shape / scale], axis=-1)

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = phi[..., 1] / (phi[..., 0] - 1)
        return mean, mean**2 / np.maximum(phi[..., 0] - 2, 0.1)

    def reward_variance(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        variance: FloatArray = self.moments(phi)[0] ** 2
        return variance

    def within(self, phi: FloatArray, noise: FloatArray, strength: float) -> FloatArray:
        return self.reward_variance(phi, noise) / strength

    def model(
        self, phi: FloatArray, variance: FloatArray, shares: FloatArray, noise: FloatArray
    ) -> ExponentialArms:
        return ExponentialArms.from_means(self.moments(phi)[0], np.sqrt(variance), shares)
