"""Learn from a log whose actions were chosen by something that the log does not hold.

If the choice of actions depended on earlier rows alone, it tells nothing about a user's state
beyond them. If whoever chose saw more, users of a state were shown other actions than users of
another one, and the average reward of an action is that of the users it was chosen for. The
mixture of arms then gets a second emission: actions of a user of state s have probabilities
rho[s] ~ Dirichlet, so that a user's log responsibility of state s is

    E[log pi_s] + sum_a N[u, a] . E[eta(theta[s, a])] + n[u, a] E[log rho[s, a]] + ...

with n[u, a] the number of a user's rows. The emission is one more statistic of the reward family,
the number one, so that the learner of arms needs no other change. It serves to learn only: the
written model has no rho, because online the policy chooses the actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from latentbandits.models.arms import dirichlet
from latentbandits.models.arms.conjugate import Learnable
from latentbandits.models.checks import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class WithActions(Learnable):
    """A reward family in which each state also has its probabilities rho of choosing actions.

    An action has the hyperparameters of its rewards, then its entry of the Dirichlet prior of rho.
    """

    rewards: Learnable

    def __post_init__(self) -> None:
        for name in ("family_name", "known"):  # for the report
            object.__setattr__(self, name, getattr(self.rewards, name))

    @classmethod
    def for_rewards(cls, rewards: FloatArray) -> Self:
        raise ValueError("actions are no family of rewards")

    @classmethod
    def outside(cls, rewards: FloatArray) -> BoolArray:
        return np.zeros(rewards.shape, np.bool_)

    @classmethod
    def takes(cls) -> str:
        return "numbers"

    def statistic(self, reward: FloatArray) -> FloatArray:
        inner = self.rewards.statistic(reward)
        return np.concatenate([inner, np.ones((*inner.shape[:-1], 1))], axis=-1)

    def log_base_measure(self, reward: FloatArray) -> FloatArray | float:
        return self.rewards.log_base_measure(reward)

    def squares(self, reward: FloatArray) -> FloatArray:
        return self.rewards.squares(reward)

    @property
    def counts_and_sums(self) -> tuple[FloatArray, FloatArray]:
        counting, paying = self.rewards.counts_and_sums
        return np.append(counting, 0.0), np.append(paying, 0.0)

    @property
    def n_parameters(self) -> int:
        return self.rewards.n_parameters

    def statistics_of_means(self, counts: FloatArray, means: FloatArray) -> FloatArray:
        inner = self.rewards.statistics_of_means(counts, means)
        return np.concatenate([inner, counts[..., None]], axis=-1)

    def centre(self, totals: FloatArray) -> FloatArray:
        """Return the mean statistics; the last is the share of an action among rows, times A."""
        share = (totals[:, -1:] + 1.0) / (totals[:, -1:] + 1.0).mean()
        return np.concatenate([self.rewards.centre(totals[:, :-1]), share], axis=-1)

    def prior(self, centre: FloatArray, strength: FloatArray) -> FloatArray:
        """Return the prior; the part for rho is worth one row for each action."""
        inner = self.rewards.prior(centre[:, :-1], strength)
        shares = np.broadcast_to(centre[:, -1:], (*inner.shape[:-1], 1))
        return np.concatenate([inner, shares], axis=-1)

    def log_normaliser(self, phi: FloatArray) -> FloatArray:
        return self.rewards.log_normaliser(phi[..., :-1])

    def expected(self, phi: FloatArray) -> FloatArray:
        return self.rewards.expected(phi[..., :-1])

    def coefficients(self, phi: FloatArray, noise: FloatArray) -> FloatArray:
        inner = self.rewards.coefficients(phi[..., :-1], noise)
        return np.concatenate([inner, dirichlet.expected_log(phi[..., -1])[..., None]], axis=-1)

    def posterior(self, prior: FloatArray, sums: FloatArray, noise: FloatArray) -> FloatArray:
        inner = self.rewards.posterior(prior[..., :-1], sums[..., :-1], noise)
        return np.concatenate([inner, prior[..., -1:] + sums[..., -1:]], axis=-1)

    def divergence(self, phi: FloatArray, prior: FloatArray) -> FloatArray:
        """Return the divergence of the rewards' parameters plus the divergence of rho, `(R,)`."""
        kl = dirichlet.divergence(phi[..., -1], prior[..., -1])
        inner = self.rewards.divergence(phi[..., :-1], prior[..., :-1])
        total: FloatArray = inner + kl.sum(axis=-1)
        return total

    def expected_log_prior(
        self, centre: FloatArray, strength: FloatArray, phi: FloatArray
    ) -> FloatArray:
        return self.rewards.expected_log_prior(centre[:, :-1], strength, phi[..., :-1])

    @property
    def noise_is_free(self) -> bool:
        return self.rewards.noise_is_free

    def with_noise_by_action(self) -> Self:
        return replace(self, rewards=self.rewards.with_noise_by_action())

    def first_noise(self, totals: FloatArray, n_starts: int) -> FloatArray:
        return self.rewards.first_noise(totals[..., :-1], n_starts)

    def update_noise(
        self, phi: FloatArray, sums: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray:
        return self.rewards.update_noise(phi[..., :-1], sums[..., :-1], squares, noise)

    def log_constant(
        self, totals: FloatArray, squares: FloatArray, noise: FloatArray
    ) -> FloatArray | float:
        return self.rewards.log_constant(totals[..., :-1], squares, noise)

    def at_noise(self, noise: FloatArray) -> Self:
        return replace(self, rewards=self.rewards.at_noise(noise))

    @property
    def unit(self) -> float:
        return self.rewards.unit

    def mean_statistic(self, phi: FloatArray) -> FloatArray:
        return self.rewards.mean_statistic(phi[..., :-1])

    def moments(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.rewards.moments(phi[..., :-1])

    def prior_variance(self, prior: FloatArray) -> FloatArray:
        return self.rewards.prior_variance(prior[..., :-1])

    def reward_variance(self, phi: FloatArray) -> FloatArray:
        return self.rewards.reward_variance(phi[..., :-1])

    def within(self, phi: FloatArray, strength: float) -> FloatArray:
        return self.rewards.within(phi[..., :-1], strength)

    def log_actions(self, phi: FloatArray) -> FloatArray:
        """Return the log probability of every action in each state, `(S, A)`."""
        log_actions: FloatArray = np.log(phi[..., -1] / phi[..., -1].sum(axis=-1, keepdims=True))
        return log_actions

    def learned(self, phi: FloatArray, variance: FloatArray, shares: FloatArray) -> Any:
        return self.rewards.learned(phi[..., :-1], variance, shares)
