"""Categorical rewards (star ratings, outcomes with a value each) with Dirichlet priors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from latentbandits.learning.arms.families.bernoulli import expected_log_shares, smoothed_shares
from latentbandits.learning.arms.families.family import Family
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.arms.categorical import CategoricalArms
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics import dirichlet

MOST_VALUES = 20


@dataclass(frozen=True)
class Categorical(Family):
    """Categorical rewards: t(r) is one-hot, and the probabilities are Dirichlet(kappa m)."""

    name: ClassVar[str] = "categorical"
    support: ClassVar[str] = f"at most {MOST_VALUES} different values"
    discrete: ClassVar[bool] = True

    values: tuple[float, ...]

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        return np.zeros(rewards.shape, np.bool_)

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        values = np.unique(rewards)
        if len(values) > MOST_VALUES:
            raise LogError(
                f"--rewards categorical takes {cls.support}; the log has {len(values):,}, from "
                f"{values[0]:g} to {values[-1]:g}: choose another family, or --rewards auto"
            )
        return cls(tuple(values.tolist()))

    @property
    def n_statistics(self) -> int:  # type: ignore[override]
        return len(self.values)

    def statistics(self, rewards: FloatArray) -> FloatArray:
        one_hot: FloatArray = np.eye(len(self.values))[np.searchsorted(self.values, rewards)]
        return one_hot

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        return np.ones(len(self.values)), np.array(self.values)

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
        mean, variance = self._of_a_reward(phi)
        return mean, variance / (strength + 1)

    def reward_variance(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        return self._of_a_reward(phi)[1]

    def within(self, phi: FloatArray, noise: FloatArray, strength: float) -> FloatArray:
        return self.reward_variance(phi, noise) / (strength + 1)

    def model(
        self, phi: FloatArray, variance: FloatArray, shares: FloatArray, noise: FloatArray
    ) -> CategoricalArms:
        probabilities = phi / phi.sum(axis=-1, keepdims=True)
        reward_variance = np.maximum(self._of_a_reward(phi)[1], 1e-300)
        strength = np.maximum(reward_variance / variance - 1, 1.0)
        return CategoricalArms(strength[..., None] * probabilities, self.values, shares)

    def _of_a_reward(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        probabilities = phi / phi.sum(axis=-1, keepdims=True)
        mean = probabilities @ np.array(self.values)
        offset = np.array(self.values) - mean[..., None]
        variance: FloatArray = (probabilities * offset**2).sum(axis=-1)
        return mean, variance
