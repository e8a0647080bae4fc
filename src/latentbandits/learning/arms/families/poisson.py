"""Poisson rewards (counts) with gamma priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from latentbandits.learning.arms.families.family import Family
from latentbandits.models.arms.poisson import PoissonArms
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics import gamma


@dataclass(frozen=True)
class Poisson(Family):
    """Poisson rewards: t(r) = (r, 1), and the prior of theta is Gamma(kappa m, kappa)."""

    name: ClassVar[str] = "poisson"
    support: ClassVar[str] = "counts (0, 1, 2, ...)"
    discrete: ClassVar[bool] = True
    n_statistics: int = 2

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        cls._refuse_outside(rewards)
        return cls()

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        outside: BoolArray = (rewards < 0) | (rewards != np.floor(rewards))
        return outside

    def statistics(self, rewards: FloatArray) -> FloatArray:
        return np.stack([rewards, np.ones_like(rewards)], axis=-1)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.array([0.0, 1.0]), np.array([1.0, 0.0])

    def log_base(self, rewards: FloatArray) -> float:
        from scipy.special import gammaln

        return -float(gammaln(rewards + 1).sum())

    def centre(self, totals: FloatArray) -> FloatArray:
        overall = (totals[:, 0].sum() + 0.5) / (totals[:, 1].sum() + 1)
        smoothed: FloatArray = (totals[:, 0] + overall) / (totals[:, 1] + 1)
        return smoothed

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        unit = np.stack([centre, np.ones_like(centre)], axis=-1)
        return strength[:, None, None, None] * unit

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        return gamma.log_normaliser(phi)

    def expected(self, phi: FloatArray) -> FloatArray:
        """Return E[log theta] and -E[theta]."""
        from scipy.special import digamma

        shape, rate = phi[..., 0], phi[..., 1]
        return np.stack([digamma(shape) - np.log(rate), -shape / rate], axis=-1)

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = phi[..., 0] / phi[..., 1]
        return mean, mean / phi[..., 1]

    def reward_variance(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        return self.moments(phi)[0]

    def within(self, phi: FloatArray, noise: FloatArray, strength: float) -> FloatArray:
        return self.reward_variance(phi, noise) / strength

    def model(
        self, phi: FloatArray, variance: FloatArray, shares: FloatArray, noise: FloatArray
    ) -> PoissonArms:
        return PoissonArms.from_means(self.moments(phi)[0], np.sqrt(variance), shares)
