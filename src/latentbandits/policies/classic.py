"""Policies that know no latent states: UCB1, LinUCB, EXP4, popularity, uniform."""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.beliefs import joint
from latentbandits.models import checks
from latentbandits.models.arms.gaussian import ArmStatistics, GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray, session_count
from latentbandits.models.linear.gaussian import LinearGaussian, LinearPosterior
from latentbandits.models.protocol import Context, KnownModel, with_defaults
from latentbandits.policies import decision
from latentbandits.policies.checked import (
    Asked,
    Choice,
    LargestScore,
    Outcome,
    PosteriorPolicy,
    WithModel,
)
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.latent.ucb import check_horizon
from latentbandits.policies.protocol import LearnsFrom


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
class LinUCB(LargestScore[LinearPosterior], WithModel[LinearPosterior]):
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
    def for_clicks(self) -> bool:
        return True

    def init(self, n_sessions: int = 1) -> LinearPosterior:
        return self.model.parameters(n_sessions)

    def _scores(self, belief: LinearPosterior, asked: Asked) -> FloatArray:
        mean, variance = self.model.posterior_rewards(belief, asked.context)
        return mean[:, 0] + self.alpha * np.sqrt(variance[:, 0])

    def _learn(self, belief: LinearPosterior, outcome: Outcome) -> LinearPosterior:
        return self.model.condition(belief, outcome.context, outcome.action, outcome.reward)[1]


# Policies that treat every user alike: the best action on average, and any action at random.


class Rounds(NamedTuple):
    """The belief of a policy that does not learn: it counts rounds."""

    counts: FloatArray  # (n_sessions,)


class _Unpersonalised(LargestScore[Rounds], WithModel[Rounds], ABC):
    """A policy that learns nothing from a session's rewards."""

    def init(self, n_sessions: int = 1) -> Rounds:
        return Rounds(np.zeros(session_count(n_sessions, self.model.n_sessions)))

    def _learn(self, belief: Rounds, outcome: Outcome) -> Rounds:
        return Rounds(belief.counts + outcome.moves)

    @property
    def learns_unseen(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Popularity(_Unpersonalised):
    """Play the action with the largest average reward, the same for every user.

    Without averages it plays argmax_a of sum_s P1(s) mu_hat(a, x, s). For actions with features
    this is the best action of the linear model with one state, whose weights are the average
    weights of the states.

    Args:
        model: gives the mean reward of every action in every state, and the states' prior.
        averages: average reward of every action in a log, `(n_actions,)`. The model's mean is used
            where it is NaN, for actions beyond its end, and if actions have features.

    >>> from latentbandits.models import GaussianArms
    >>> policy = Popularity(GaussianArms([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([2])
    """

    model: KnownModel
    averages: FloatArray | None = None

    def _scores(self, belief: Rounds, asked: Asked) -> FloatArray:
        prior = np.exp(self.model.log_state_prior)
        scores = (prior[:, None, :] @ self.model.expected_rewards(asked.context))[:, 0]
        if self.averages is not None and self.model.n_features is None:
            known = np.flatnonzero(~np.isnan(self.averages))
            scores[:, known] = self.averages[known]
        return np.broadcast_to(scores, (len(belief.counts), scores.shape[1]))


@dataclass(frozen=True, eq=False)
class Uniform(_Unpersonalised):
    """Play every eligible action equally often: the control group that any policy should beat.

    Args:
        model: says which actions there are.

    >>> from latentbandits.models import GaussianArms
    >>> policy = Uniform(GaussianArms([[0.9, 0.1, 0.5, 0.2]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity
    array([0.25])
    """

    model: KnownModel

    def _scores(self, belief: Rounds, asked: Asked) -> FloatArray:
        n_sessions = len(belief.counts)
        return np.zeros((n_sessions, self.checked_context(asked.context, n_sessions)[1]))


# EXP4 with the states of the model as experts.


class ExpertWeights(NamedTuple):
    """The weights of the experts after some rounds."""

    log_weights: FloatArray  # (n_sessions, n_states): -rate * losses
    losses: FloatArray  # (n_sessions, n_states), importance-weighted
    rounds: FloatArray  # (n_sessions,)


@dataclass(frozen=True, eq=False)
class EXP4(PosteriorPolicy[ExpertWeights]):
    """Exponential weights over experts; expert s recommends argmax_a mu_hat(a, x, s).

    Losses are 1 - (r - low) / (high - low) for the declared `reward_range` (low, high), not
    clipped outside it, divided by the probability of the action that was played. The rate is
    sqrt(2 log S / (n K)); with the horizon n unknown, n is the round.

    Args:
        model: its states are the experts.
        reward_range: least and largest reward.
        horizon: number of rounds n; None if unknown.
        rate: learning rate; None is the one above.

    >>> from latentbandits.models import GaussianArms
    >>> policy = EXP4(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5), horizon=500)
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity
    array([0.5])
    """

    learns_from: ClassVar[LearnsFrom] = "own"

    model: KnownModel
    reward_range: tuple[float, float] = (0.0, 1.0)
    horizon: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_horizon(self.horizon)
        low, high = self.reward_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"reward_range must be (low, high) with low < high; got {low, high}")
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"rate must be a finite number above zero; got {self.rate}")

    def init(self, n_sessions: int = 1) -> ExpertWeights:
        shape = (session_count(n_sessions, self.model.n_sessions), self.model.n_states)
        return ExpertWeights(np.zeros(shape), np.zeros(shape), np.zeros(shape[0]))

    def shift_state_prior(self, belief: ExpertWeights, shift: FloatArray) -> ExpertWeights:
        """Return the belief unchanged: the weights follow from losses alone, without a prior."""
        return belief

    def _advice(self, n: int, context: Context, eligible: BoolArray | None) -> FloatArray:
        """Return the probability of each action by each expert, who splits ties: `(n, S, K)`."""
        mask = None if eligible is None else eligible[:, None, :]
        best = decision.best(decision.restrict(self.model.expected_rewards(context), mask))
        return np.broadcast_to(decision.shares(best), (n, *best.shape[1:]))

    def _choose(self, belief: ExpertWeights, asked: Asked, propensity: bool) -> Choice:
        weights = joint.probabilities(belief.log_weights)
        session = np.arange(len(weights))
        advice = self._advice(len(weights), asked.context, asked.eligible)
        expert = decision.draw(weights, asked.rng)
        action = decision.pick(advice[session, expert] > 0, asked.rng)
        chance = (weights * advice[session, :, action]).sum(axis=1)
        return Choice(action, expert, chance, "exact")

    def _learn(self, belief: ExpertWeights, outcome: Outcome) -> ExpertWeights:
        if outcome.decision.propensity is None:
            raise ValueError(
                "EXP4 learns from the probability of the action that was played: pass it as "
                "Decision.logged(action, propensity=...)"
            )
        session = np.arange(len(outcome.action))
        advice = self._advice(len(session), outcome.context, outcome.decision.eligible)
        low, high = self.reward_range
        loss = (high - outcome.reward) / (high - low) / outcome.decision.propensity
        losses = belief.losses + advice[session, :, outcome.action] * loss[:, None]
        rounds = belief.rounds + outcome.moves
        rate = self._rate(rounds + 1, advice.shape[2])
        return ExpertWeights(-rate[:, None] * losses, losses, rounds)

    def _rate(self, rounds: FloatArray, n_actions: int) -> FloatArray:
        if self.rate is not None:
            return np.full_like(rounds, self.rate)
        n = rounds if self.horizon is None else np.full_like(rounds, self.horizon)
        return np.sqrt(2 * math.log(self.model.n_states) / (n * n_actions))

    def _probabilities(self, belief: ExpertWeights, asked: Asked) -> ActionProbabilities:
        weights = joint.probabilities(belief.log_weights)
        advice = self._advice(len(weights), asked.context, asked.eligible)
        return ActionProbabilities((weights[:, None, :] @ advice)[:, 0], "exact")


def build_ucb1(n_actions: int, noise: float = 1.0, scale: float | None = None) -> UCB1:
    """Build UCB1 whose bonus has the scale of the noise."""
    return UCB1(n_actions, noise if scale is None else scale)


def build_uniform(model: KnownModel | None = None, n_actions: int | None = None) -> Uniform:
    """Build Uniform on the actions of the model, or without a model on `n_actions`."""
    if model is not None:
        return Uniform(model)
    if n_actions is None:
        raise ValueError("uniform needs a model or the number of actions, n_actions=...")
    return Uniform(GaussianArms(np.zeros((1, n_actions)), noise=1.0))  # it only counts the actions


def build_exp4(
    model: KnownModel,
    reward_range: tuple[float, float] | None = None,
    horizon: int | None = None,
    rate: float | None = None,
    items: FloatArray | None = None,
) -> EXP4:
    """Build EXP4 with losses scaled by the declared range, or else by the model's range."""
    rewards = likely_rewards(model, items) if reward_range is None else reward_range
    low, high = rewards or (0.0, 1.0)
    return EXP4(model, (low, high), horizon, rate)


def likely_rewards(model: Any, items: FloatArray | None = None) -> tuple[float, float] | None:
    """Return a range that holds most rewards of a model; None if it depends on features.

    >>> from latentbandits import BernoulliArms, GaussianArms
    >>> likely_rewards(GaussianArms([[0.0, 1.0]], noise=0.5))
    (-1.0, 2.0)
    >>> likely_rewards(BernoulliArms([[1.0, 1.0]], 1.0))
    (0.0, 1.0)
    """
    bounds = with_defaults(model).support.bounds
    if bounds is not None:
        return bounds
    context = None
    if model.n_actions is None:
        if items is None:
            return None
        context = np.broadcast_to(items, (model.n_sessions or 1, *items.shape))
    means = model.expected_rewards(model.check_context(context, model.n_sessions or 1))
    return float(means.min() - 2 * model.noise), float(means.max() + 2 * model.noise)
