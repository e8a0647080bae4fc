"""Bernoulli rewards (clicks, sales) with beta priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from latentbandits.learning.arms.families.family import Family
from latentbandits.models.arms.bernoulli import BernoulliArms
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics import dirichlet


@dataclass(frozen=True)
class Bernoulli(Family):
    """Bernoulli rewards: t(r) = (r, 1 - r), and theta ~ Beta(kappa m, kappa (1 - m))."""

    name: ClassVar[str] = "bernoulli"
    support: ClassVar[str] = "0 or 1"
    discrete: ClassVar[bool] = True
    n_statistics: int = 2

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        cls._refuse_outside(rewards)
        return cls()

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        outside: BoolArray = (rewards != 0) & (rewards != 1)
        return outside

    def statistics(self, rewards: FloatArray) -> FloatArray:
        return np.stack([rewards, 1 - rewards], axis=-1)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.array([1.0, 1.0]), np.array([1.0, 0.0])

    def allowed_means(self, means: FloatArray) -> FloatArray:
        return np.clip(means, 1e-6, 1 - 1e-6)

    def log_base(self, rewards: FloatArray) -> float:
        return 0.0

    def centre(self, totals: FloatArray) -> FloatArray:
        return smoothed_shares(totals)

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        return strength[:, None, None, None] * centre

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        return dirichlet.log_normaliser(phi)

    def expected(self, phi: FloatArray) -> FloatArray:
        return expected_log_shares(phi)

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        strength = phi.sum(axis=-1)
        mean: FloatArray = phi[..., 0] / strength
        return mean, mean * (1 - mean) / (strength + 1)

    def reward_variance(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        mean = self.moments(phi)[0]
        variance: FloatArray = mean * (1 - mean)
        return variance

    def within(self, phi: FloatArray, noise: FloatArray, strength: float) -> FloatArray:
        return self.reward_variance(phi, noise) / (strength + 1)

    def model(
        self, phi: FloatArray, variance: FloatArray, shares: FloatArray, noise: FloatArray
    ) -> BernoulliArms:
        mean = self.moments(phi)[0]
        widest = 0.5 * mean * (1 - mean)  # keeps at least one pseudo-observation in total
        return BernoulliArms.from_means(mean, np.sqrt(np.minimum(variance, widest)), shares)


def smoothed_shares(totals: FloatArray) -> FloatArray:
    """Return each action's category shares, smoothed by one reward at the overall shares."""
    overall = totals.sum(axis=0) / totals.sum()
    # Half a reward of each category is added to the whole log, so no probability is zero.
    n_categories = len(overall)
    overall = (overall * totals.sum() + 0.5) / (totals.sum() + 0.5 * n_categories)
    smoothed: FloatArray = (totals + overall) / (totals.sum(axis=1, keepdims=True) + 1)
    return smoothed


def expected_log_shares(phi: FloatArray) -> FloatArray:
    """Return E[log p_c] under Dirichlet(phi)."""
    from scipy.special import digamma

    expected: FloatArray = digamma(phi) - digamma(phi.sum(axis=-1, keepdims=True))
    return expected
