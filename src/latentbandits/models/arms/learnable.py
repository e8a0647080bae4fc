"""The functions of a reward family p(r | theta) that learning needs.

With t(r) the statistics of a reward, log p(r | theta) = log b(r) + t(r) . eta(theta). A conjugate
prior on theta[s, a] has hyperparameters phi, to which the statistics of rewards are added, and a
log normaliser log Z(phi). Then, under q = prior(phi),

    E[eta] = grad log Z(phi),
    KL(q(phi) || q(phi0)) = (phi - phi0) . E[eta] - log Z(phi) + log Z(phi0).

A family therefore states its statistics, log Z and the gradient of log Z. Arrays of
hyperparameters have the shape (..., n_states, n_actions, n_hyperparameters). R below counts
mixtures that are fitted side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray

STRENGTHS = (1e-2, 1e7)
"""Bounds of the strength of the pooled prior, in rewards."""


class RewardFacts(Protocol):
    """The facts about a log's rewards that a family needs (`logs.summary.RewardSummary`)."""

    @property
    def values(self) -> FloatArray:
        """Distinct rewards: all, or many and, for each family, one outside its support if any."""

    @property
    def mean(self) -> float: ...

    @property
    def deviation(self) -> float: ...

    @property
    def end_shares(self) -> tuple[float, float]:
        """The shares of rewards that equal the least and the largest one."""


class Learnable(ABC):
    """Rewards of one family, as learning sees them. Instances are made by `for_rewards`."""

    family_name: ClassVar[str] = ""
    """The name in `--rewards`; a family without one cannot be learned."""

    smoothing: ClassVar[float | tuple[float, ...]] = 0.0
    """Statistics that are added to those of the whole log, so that no probability is zero."""

    # The rewards of a log.

    @classmethod
    @abstractmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        """Return the family for a log's rewards; raise ValueError if it cannot take them."""

    @classmethod
    def for_facts(cls, facts: RewardFacts) -> Self:
        """Return the family for rewards that are too many to look at."""
        return cls.for_rewards(facts.values)

    def tuned(self, rewards: FloatArray) -> Self:
        """Return the family with its settings chosen on a sample of the rewards."""
        return self

    @classmethod
    @abstractmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        """Mark the rewards that are outside the support."""

    @classmethod
    @abstractmethod
    def takes(cls) -> str:
        """Return the rewards that the family takes, in words."""

    def outcomes(self, reward: FloatArray, position: IntArray | None) -> FloatArray:
        """Return rewards with their positions in a list, counted from 0, as one number each.

        Here they are the rewards: in most families positions do not matter.
        """
        return reward

    @abstractmethod
    def statistic(self, reward: FloatArray) -> FloatArray:
        """Return t(r): `(..., n_statistics)`."""

    @abstractmethod
    def log_base_measure(self, reward: FloatArray) -> FloatArray | float:
        """Return log b(r)."""

    def summed(self, reward: FloatArray) -> FloatArray:
        """Return what learning sums over the rewards of a user for an action: t(r)."""
        return self.statistic(reward)

    def squares(self, reward: FloatArray) -> FloatArray:
        """Return what `update_noise` needs of each reward beside its statistics: r^2."""
        return reward**2

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        """The coefficients of the statistics that give the count and the sum of rewards."""
        raise NotImplementedError(self._not_learnable)

    @property
    def _not_learnable(self) -> str:
        return (
            f"{type(self).__name__} cannot be learned from a log: it needs counts_and_sums, "
            "expected, reward_variance and distribution"
        )

    @property
    def n_statistics(self) -> int:
        return len(self.counts_and_sums[0])

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of a state's action."""
        return self.n_statistics - 1

    def statistics_of_means(self, counts: FloatArray, means: FloatArray) -> FloatArray:
        """Return the statistics `(S, A, K)` of `counts` rewards with the given `means`.

        Raise ValueError if means do not determine the family's parameters.
        """
        counting, paying = self.counts_and_sums
        if self.n_statistics != 2:
            raise ValueError("--method spectral learns only means, which do not determine "
                             f"{self.family_name} rewards: use --method em")  # fmt: skip
        solve = np.linalg.inv(np.stack([counting, paying]))
        allowed = self.allowed_means(means)
        return np.stack([counts, counts * allowed], axis=-1) @ solve.T

    def allowed_means(self, means: FloatArray) -> FloatArray:
        """Return means in the units of the statistics, clipped to the inside of the support."""
        return np.maximum(means, 1e-6)

    # The prior and posterior of theta.

    def centre(self, totals: FloatArray) -> FloatArray:
        """Return every action's mean statistics over all users, `(n_actions, n_statistics)`.

        `totals`, of the same shape, are the summed statistics. One reward with the overall mean
        statistics is added to each action.
        """
        counting, _ = self.counts_and_sums
        overall = totals.sum(axis=0) + self.smoothing
        smoothed: FloatArray = totals + overall / (overall @ counting)
        return smoothed / (smoothed @ counting)[:, None]

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        """Return phi0 `(R, 1, A, K)` of the pooled prior at `centre`, worth `strength` rewards."""
        return strength[:, None, None, None] * centre

    @abstractmethod
    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        """Return log Z(phi)."""

    def expected(self, phi: FloatArray) -> FloatArray:
        """Return E[eta] = grad log Z(phi)."""
        raise NotImplementedError(self._not_learnable)

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

    # The noise, a parameter that all states share. Most families have none.

    known: float | None = None
    """The standard deviation of rewards, if it was given."""

    @property
    def noise_is_free(self) -> bool:
        """Whether the noise is estimated, so that one noise for each action can be tried."""
        return False

    def with_noise(self, known: float | None) -> Self:
        """Return the family with a known standard deviation of rewards; None: estimated."""
        raise ValueError(f"noise is for gaussian rewards; these are {self.family_name}")

    def with_noise_by_action(self) -> Self:
        """Return the family with one noise for each action."""
        raise ValueError(f"noise is for gaussian rewards; these are {self.family_name}")

    def first_noise(self, totals: FloatArray, n_starts: int) -> FloatArray:
        """Return the initial noise variances `(R, A)`; ones for families without noise."""
        return np.ones((n_starts, totals.shape[0]))

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Return the noise `(R, A)` that maximises the ELBO given q.

        `squares` (R, A) are the sums of `squares` of rewards.
        """
        return noise

    def log_constant(
        self, totals: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray | float:
        """Return the terms of the ELBO `(R,)` that depend on no state, except the base measure.

        `totals` (R, A, K) are the statistics, summed over all users.
        """
        return 0.0

    def at_noise(self, noise: FloatArray) -> Self:
        """Return the family with the estimated noise `(A,)`, for the methods below."""
        return self

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
        """Return mean and variance of the mean reward under theta ~ phi."""

    def prior_variance(self, prior: FloatArray) -> FloatArray:
        """Return the variance of the mean reward under the pooled prior; finite in any case."""
        return self.moments(prior)[1]

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        """Return V, the variance of a reward at the mean parameter of q, `(..., S, A)`."""
        raise NotImplementedError(self._not_learnable)

    def within(self, phi: FloatArray, strength: float) -> FloatArray:
        """Return the variance of users' means within a state, for a prior worth `strength` rewards.

        An infinite strength gives zero.
        """
        return self.reward_variance(phi) / strength

    def log_actions(self, phi: FloatArray) -> FloatArray | None:
        """Return log probabilities of actions `(S, A)`, if states tell which are chosen."""
        return None

    @abstractmethod
    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Any:
        """Return the model with q's mean parameters `phi` (S, A, K).

        `variance` (S, A) is the prior variance of the model's mean rewards.
        """
