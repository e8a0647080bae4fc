"""The frame of a reward family: what the variational mixture needs to know of p(r | theta).

With t(r) the statistics of a reward, log p(r | theta) = log b(r) + t(r) . eta(theta). A conjugate
prior on theta[s, a] has hyperparameters phi to which rewards add their statistics, and
log normaliser log Z(phi). Then, under q = prior(phi),

    E[eta] = grad log Z(phi),
    KL(q(phi) || q(phi0)) = (phi - phi0) . E[eta] - log Z(phi) + log Z(phi0).

So a family states its statistics, log Z and its gradient; the mixture follows. Arrays of
hyperparameters have the shape (..., n_states, n_actions, n_statistics).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np

from latentbandits.learning.tables import LogError
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray

ArmsModel = GaussianArms | ConjugateArms

STRENGTHS = (1e-2, 1e7)
"""Bounds of the pooled prior's strength, in rewards."""


class Family(ABC):
    """Rewards of one conjugate family. Instances are frozen values; `of` sets one up for a log."""

    name: ClassVar[str]
    support: ClassVar[str]  # in words, for messages
    discrete: ClassVar[bool]
    n_statistics: int

    @classmethod
    @abstractmethod
    def of(cls, rewards: FloatArray) -> Self:
        """Return the family for a log's rewards; LogError where they are outside its support."""

    @classmethod
    @abstractmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        """Mark the rewards that are not in the support."""

    @classmethod
    def _refuse_outside(cls, rewards: FloatArray) -> None:
        outside = cls.outside(rewards)
        if outside.any():
            raise LogError(
                f"{cls.name} rewards are {cls.support}; {int(outside.sum()):,} of "
                f"{len(rewards):,} are not, such as {rewards[outside][0]:g}"
            )

    # Rewards.

    @abstractmethod
    def statistics(self, rewards: FloatArray) -> FloatArray:
        """t(r) of every reward: `(n, n_statistics)`."""

    @property
    @abstractmethod
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        """Return the counts and the sums of rewards as combinations of the statistics."""

    @abstractmethod
    def log_base(self, rewards: FloatArray) -> float:
        """The sum of log b(r)."""

    def statistics_of_means(self, counts: FloatArray, means: FloatArray) -> FloatArray:
        """Statistics `(S, A, K)` of so many rewards with these means; LogError where means do not
        say enough.
        """
        counting, paying = self.counts_and_sums
        if self.n_statistics != 2:
            raise LogError(f"--method spectral learns means, which {self.name} rewards need more "
                           "than: use --method em")  # fmt: skip
        solve = np.linalg.inv(np.stack([counting, paying]))
        allowed = self.allowed_means(means)
        statistics: FloatArray = np.stack([counts, counts * allowed], axis=-1) @ solve.T
        return statistics

    def allowed_means(self, means: FloatArray) -> FloatArray:
        """Means in the units of the statistics, moved inside the family's support."""
        return np.maximum(means, 1e-6)

    # The prior and posterior of theta.

    @abstractmethod
    def centre(self, totals: FloatArray) -> FloatArray:
        """The smoothed mean parameter of every action over all users, from the totals of the
        statistics `(n_actions, n_statistics)`. One reward at the overall mean is added.
        """

    @abstractmethod
    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        """phi0 of the pooled prior at `centre`, worth `strength` (R,) rewards: `(R, 1, A, K)`."""

    @abstractmethod
    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        """Log Z(phi)."""

    @abstractmethod
    def expected(self, phi: FloatArray) -> FloatArray:
        """E[eta] = grad log Z(phi)."""

    def coefficients(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        """E[log p] of a reward as combinations of its statistics, `(R, S, A, K)`."""
        return self.expected(phi)

    def posterior(self, prior: FloatArray, sums: FloatArray, noise: FloatArray) -> FloatArray:
        """Phi after rewards whose statistics sum to `sums` (R, S, A, K)."""
        return prior + sums

    def divergence(self, phi: FloatArray, prior: FloatArray) -> FloatArray:
        """KL(q(phi) || prior), summed over states and actions: `(R,)`."""
        gain = ((phi - prior) * self.expected(phi)).sum(axis=-1)
        kl = gain - self.log_normaliser(phi) + self.log_normaliser(prior)
        total: FloatArray = kl.sum(axis=(-2, -1))
        return total

    def expected_log_prior(
        self, centre: FloatArray, strength: FloatArray, phi: FloatArray
    ) -> FloatArray:
        """E_q[log prior] as a function of the strength, up to a constant: `(R,)`."""
        prior = self.prior(centre, strength)
        inner = (prior[:, 0] * self.expected(phi).sum(axis=1)).sum(axis=(-2, -1))
        total: FloatArray = inner - phi.shape[1] * self.log_normaliser(prior[:, 0]).sum(axis=-1)
        return total

    # Noise, of families that have one.

    def first_noise(self, totals: FloatArray, n_starts: int) -> FloatArray:
        """Return the initial variances of rewards, `(R, A)`; ones for families without."""
        return np.ones((n_starts, totals.shape[0]))

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """The variances that raise the ELBO most, given q; `squares` (R, A) of rewards."""
        return noise

    def log_constant(
        self, counts: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray | float:
        """Terms of the ELBO that no state changes, beside `log_base`: `(R,)`."""
        return 0.0

    # Means.

    @property
    def unit(self) -> float:
        """One unit of the statistics' rewards, in rewards."""
        return 1.0

    def mean_statistic(self, phi: FloatArray) -> FloatArray:
        """The mean reward in the units of the statistics."""
        return self.moments(phi)[0]

    @abstractmethod
    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, under q, of the mean reward."""

    @abstractmethod
    def reward_variance(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        """V: the variance of a reward at the mean parameter of q, `(..., S, A)`."""

    @abstractmethod
    def within(self, phi: FloatArray, noise: FloatArray, strength: float) -> FloatArray:
        """Variance of users' means in a state that are worth `strength` rewards; 0 at infinity."""

    @abstractmethod
    def model(
        self, phi: FloatArray, variance: FloatArray, shares: FloatArray, noise: FloatArray
    ) -> ArmsModel:
        """The model of q's mean parameters `phi` (S, A, K), whose prior has this variance of the
        mean rewards (S, A).
        """
