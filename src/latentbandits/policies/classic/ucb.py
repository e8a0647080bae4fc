"""The classic optimistic baselines, without a latent model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.arms.gaussian import ArmStatistics
from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.gaussian import LinearGaussian, LinearPosterior
from latentbandits.models.protocol import Context
from latentbandits.policies.checked import Asked, LargestScore, Outcome
from latentbandits.policies.latent.base import check_context


@dataclass(frozen=True, eq=False)
class UCB1(LargestScore[ArmStatistics]):
    """Play each action once, then the largest mean + scale sqrt(2 log t / n_a).

    Args:
        n_actions: number of actions.
        scale: scale of a reward; 1 is for rewards in [0, 1].

    >>> policy = UCB1(n_actions=2)
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity
    array([0.5])
    """

    n_actions: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        checks.positive_count("n_actions", self.n_actions)
        checks.positive_number("scale", self.scale)

    def init(self, n_sessions: int = 1) -> ArmStatistics:
        shape = (checks.session_count(n_sessions, None), self.n_actions)
        return ArmStatistics(np.zeros(shape), np.zeros(shape))

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        checks.no_context("UCB1", context)
        return None, self.n_actions

    def _scores(self, belief: ArmStatistics, asked: Asked) -> FloatArray:
        """Return the upper confidence bound of every action; infinite where it was never tried."""
        untried = belief.counts == 0
        counts = np.where(untried, 1.0, belief.counts)
        rounds = np.maximum(belief.counts.sum(axis=1, keepdims=True), 1.0)
        index = belief.sums / counts + self.scale * np.sqrt(2 * np.log(rounds) / counts)
        return np.where(untried, np.inf, index)

    def _learn(self, belief: ArmStatistics, outcome: Outcome) -> ArmStatistics:
        return belief.add(outcome.action, outcome.reward)


@dataclass(frozen=True, eq=False)
class LinUCB(LargestScore[LinearPosterior]):
    """Play the largest x'theta + alpha sqrt(x' A^-1 x), with A = ridge I + sum x x'.

    theta and A^-1 are the posterior mean and covariance of a linear Gaussian model with one state,
    noise 1 and prior covariance I / ridge, and are computed as such.

    Args:
        n_features: number of features of an action.
        alpha: factor of the confidence bonus.
        ridge: ridge penalty of the regression.

    >>> policy = LinUCB(n_features=2)
    >>> policy.decide(policy.init(), [[[1.0, 0.0], [0.0, 2.0]]], np.random.default_rng(0)).action
    array([1])
    """

    n_features: int
    alpha: float = 1.0
    ridge: float = 1.0
    model: LinearGaussian = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checks.positive_count("n_features", self.n_features)
        checks.positive_number("alpha", self.alpha)
        prior = np.eye(self.n_features)[None] / checks.positive_number("ridge", self.ridge)
        model = LinearGaussian(np.zeros((1, self.n_features)), 1.0, prior)
        object.__setattr__(self, "model", model)

    @property
    def model_or_none(self) -> LinearGaussian:
        return self.model

    @property
    def for_clicks(self) -> bool:
        return True

    def init(self, n_sessions: int = 1) -> LinearPosterior:
        return self.model.parameters(n_sessions)

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        return check_context(self.model, context, n_sessions)

    def _scores(self, belief: LinearPosterior, asked: Asked) -> FloatArray:
        mean, variance = self.model.posterior_rewards(belief, asked.context)
        index: FloatArray = mean[:, 0] + self.alpha * np.sqrt(variance[:, 0])
        return index

    def _learn(self, belief: LinearPosterior, outcome: Outcome) -> LinearPosterior:
        return self.model.condition(belief, outcome.context, outcome.action, outcome.reward)[1]
