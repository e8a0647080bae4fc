"""The frame of population policies, and the sums of their users.

A session is whatever shares a belief. Here that is a population: the session axis counts
populations side by side, and the context says who asks (`Visit`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.visit import Visit, check_visit
from latentbandits.policies import decision
from latentbandits.policies.checked import Asked, CheckedPolicy, Choice, LargestScore, Outcome
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.protocol import BeliefT


class PopulationPolicy(CheckedPolicy[BeliefT], ABC):
    """A policy whose context is a `Visit`. A belief's first field is `rounds`, `(B,)`.

    Subclasses have `n_users`, and `n_features` where actions come with features.
    """

    n_users: int
    n_features: int | None

    @property
    def population_size(self) -> int:
        return self.n_users

    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        user, features = check_visit(context, n_sessions, self.n_users, self.n_features)
        assert features is not None
        return Visit(user, features), features.shape[1]


class ScoredPopulation(LargestScore[BeliefT], PopulationPolicy[BeliefT], ABC):
    """A population policy that plays the largest of its scores, ties at random."""


class ServedByOthers(PopulationPolicy[BeliefT], ABC):
    """A population policy that serves each user by a policy of one session."""

    @abstractmethod
    def _serving(self, belief: BeliefT, user: IntArray) -> tuple[CheckedPolicy[Any], Any]:
        """Return the policy of one session, and its belief about each user who asks."""

    def _choose(self, belief: BeliefT, asked: Asked, propensity: bool) -> Choice:
        policy, of_user = self._serving(belief, asked.context.user)
        return policy._choose(of_user, asked._replace(context=asked.context.features), propensity)

    def _probabilities(self, belief: BeliefT, asked: Asked) -> ActionProbabilities:
        policy, of_user = self._serving(belief, asked.context.user)
        return policy._probabilities(of_user, asked._replace(context=asked.context.features))


class SampledPopulation(PopulationPolicy[BeliefT], ABC):
    """A population policy that plays the best action of one draw of mean rewards.

    The propensity of an action is its share among `propensity_draws` further draws; 0: none.
    """

    propensity_draws: int

    @abstractmethod
    def _draw(
        self, belief: BeliefT, visit: Visit, n_draws: int, rng: np.random.Generator
    ) -> FloatArray:
        """Draw mean rewards of every action for the user who asks, `(B, n_draws, K)`."""

    def _choose(self, belief: BeliefT, asked: Asked, propensity: bool) -> Choice:
        action, state = (drawn[:, 0] for drawn in self.sample_actions(belief, asked, 1))
        return self._with_propensity(belief, asked, action, state, propensity)

    def sample_actions(
        self, belief: BeliefT, asked: Asked, draws: int
    ) -> tuple[IntArray, IntArray]:
        rewards = self._draw(belief, asked.context, draws, asked.rng)
        action = decision.pick_best_of_draws(rewards, asked.eligible, asked.rng)
        return action, np.zeros_like(action)

    def _probabilities(self, belief: BeliefT, asked: Asked) -> ActionProbabilities:
        if self.propensity_draws < 1:
            return super()._probabilities(belief, asked)
        rewards = self._draw(belief, asked.context, self.propensity_draws, asked.rng)
        return decision.count_best(rewards, asked.eligible)


class Sums(NamedTuple):
    """A user's sums: they do not depend on the order of rewards, and add up over users."""

    gram: FloatArray  # (..., d, d): sum x x'
    products: FloatArray  # (..., d): sum x r


def empty_sums(n_features: int) -> Sums:
    """Return sums without rewards: zeros."""
    return Sums(np.zeros((n_features, n_features)), np.zeros(n_features))


def add_to_sums(sums: Sums, x: FloatArray, reward: FloatArray) -> Sums:
    """Add one reward to the sums of one user in each of B populations."""
    return Sums(sums.gram + x[:, :, None] * x[:, None, :], sums.products + x * reward[:, None])


def played_features(outcome: Outcome) -> FloatArray:
    """Return the features of each population's action, `(B, d)`."""
    features: FloatArray = outcome.context.features
    return features[np.arange(len(outcome.action)), outcome.action]


def invert(matrices: FloatArray) -> FloatArray:
    """Return the inverse of each matrix `(..., d, d)`."""
    return np.asarray(np.linalg.inv(matrices), np.float64)
