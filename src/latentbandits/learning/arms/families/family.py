"""The interface of a reward family: the functions of p(r | theta) that the mixture needs.

With t(r) the statistics of a reward, log p(r | theta) = log b(r) + t(r) . eta(theta). A conjugate
prior on theta[s, a] has hyperparameters phi, to which the statistics of rewards are added, and a
log normaliser log Z(phi). Then, under q = prior(phi),

    E[eta] = grad log Z(phi),
    KL(q(phi) || q(phi0)) = (phi - phi0) . E[eta] - log Z(phi) + log Z(phi0).

A family therefore defines its statistics, log Z and the gradient of log Z. Arrays of
hyperparameters have the shape (..., n_states, n_actions, n_statistics).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np

from latentbandits.learning.logs.tables import LogError
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray

ArmsModel = GaussianArms | ConjugateArms

STRENGTHS = (1e-2, 1e7)
"""Bounds of the strength of the pooled prior, in rewards."""


class Family(ABC):
    """Rewards of one conjugate family. Instances are immutable, made by `for_rewards`."""

    name: ClassVar[str]
    support: ClassVar[str]  # in words, for error messages
    discrete: ClassVar[bool]
    n_statistics: int

    @classmethod
    @abstractmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        """Return the family for a log's rewards; raise LogError if some are outside its support."""

    @classmethod
    @abstractmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        """Mark the rewards that are outside the support."""

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
        """Return t(r) of every reward, `(n, n_statistics)`."""

    @property
    @abstractmethod
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        """Return the coefficients of the statistics that give the count and the sum of rewards."""

    @abstractmethod
    def log_base(self, rewards: FloatArray) -> float:
        """Return the sum of log b(r)."""

    def statistics_of_means(self, counts: FloatArray, means: FloatArray) -> FloatArray:
        """Return the statistics `(S, A, K)` of `counts` rewards with the given `means`.

        Raise LogError if means do not determine the family's parameters.
        """
        counting, paying = self.counts_and_sums
        if self.n_statistics != 2:
            raise LogError("--method spectral learns only means, which do not determine "
                           f"{self.name} rewards: use --method em")  # fmt: skip
        solve = np.linalg.inv(np.stack([counting, paying]))
        allowed = self.allowed_means(means)
        statistics: FloatArray = np.stack([counts, counts * allowed], axis=-1) @ solve.T
        return statistics

    def allowed_means(self, means: FloatArray) -> FloatArray:
        """Return means in the units of the statistics, clipped to the inside of the support."""
        return np.maximum(means, 1e-6)

    # The prior and posterior of theta.

    @abstractmethod
    def centre(self, totals: FloatArray) -> FloatArray:
        """Return every action's smoothed mean parameter over all users.

        `totals` (n_actions, n_statistics) are the summed statistics; one reward at the overall mean
        is added to each action.
        """

    @abstractmethod
    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        """Return phi0 `(R, 1, A, K)` of the pooled prior at `centre`, worth `strength` rewards."""

    @abstractmethod
    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        """Return log Z(phi)."""

    @abstractmethod
    def expected(self, phi: FloatArray) -> FloatArray:
        """Return E[eta] = grad log Z(phi)."""

    def coefficients(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        """Return the coefficients of the statistics in E[log p] of a reward, `(R, S, A, K)`."""
        return self.expected(phi)

    def posterior(self, prior: FloatArray, sums: FloatArray, noise: FloatArray) -> FloatArray:
        """Return phi after rewards whose statistics sum to `sums` (R, S, A, K)."""
        return prior + sums

    def divergence(self, phi: FloatArray, prior: FloatArray) -> FloatArray:
        """Return KL(q(phi) || prior), summed over states and actions, `(R,)`."""
        gain = ((phi - prior) * self.expected(phi)).sum(axis=-1)
        kl = gain - self.log_normaliser(phi) + self.log_normaliser(prior)
        total: FloatArray = kl.sum(axis=(-2, -1))
        return total

    def expected_log_prior(
        self, centre: FloatArray, strength: FloatArray, phi: FloatArray
    ) -> FloatArray:
        """Return E_q[log prior] as a function of the strength, up to a constant, `(R,)`."""
        prior = self.prior(centre, strength)
        inner = (prior[:, 0] * self.expected(phi).sum(axis=1)).sum(axis=(-2, -1))
        total: FloatArray = inner - phi.shape[1] * self.log_normaliser(prior[:, 0]).sum(axis=-1)
        return total

    # Noise variance (only the Gaussian family has one).

    def first_noise(self, totals: FloatArray, n_starts: int) -> FloatArray:
        """Return the initial noise variances `(R, A)`; ones for families without noise."""
        return np.ones((n_starts, totals.shape[0]))

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Return the noise variances that maximise the ELBO given q.

        `squares` (R, A) are the sums of squared rewards.
        """
        return noise

    def log_constant(
        self, counts: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray | float:
        """Return the terms of the ELBO `(R,)` that depend on no state, except `log_base`."""
        return 0.0

    # Means.

    @property
    def unit(self) -> float:
        """The size, in rewards, of one unit of the statistics."""
        return 1.0

    def mean_statistic(self, phi: FloatArray) -> FloatArray:
        """Return the mean reward in the units of the statistics."""
        return self.moments(phi)[0]

    @abstractmethod
    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the variance, under q, of the mean reward."""

    @abstractmethod
    def reward_variance(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        """Return V, the variance of a reward at the mean parameter of q, `(..., S, A)`."""

    @abstractmethod
    def within(self, phi: FloatArray, noise: FloatArray, strength: float) -> FloatArray:
        """Return the variance of users' means within a state, for a prior worth `strength` rewards.

        An infinite strength gives zero.
        """

    @abstractmethod
    def model(
        self, phi: FloatArray, variance: FloatArray, shares: FloatArray, noise: FloatArray
    ) -> ArmsModel:
        """Return the model with q's mean parameters `phi` (S, A, K).

        `variance` (S, A) is the prior variance of the model's mean rewards.
        """
