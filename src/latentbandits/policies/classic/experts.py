"""EXP4 with the states of the model as experts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from latentbandits.beliefs import states
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, session_count
from latentbandits.models.protocol import Context, KnownModel
from latentbandits.policies import choice
from latentbandits.policies.checked import Asked, Choice, Outcome
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.latent.base import PosteriorPolicy
from latentbandits.policies.latent.ucb import check_horizon
from latentbandits.policies.protocol import LearnsFrom


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
        """Return the belief as it is: weights follow from losses alone, and have no prior."""
        return belief

    def _advice(self, context: Context, eligible: BoolArray | None) -> BoolArray:
        """Mark the actions that each expert recommends, several if they tie: `(1 or n, S, K)`."""
        mask = None if eligible is None else eligible[:, None, :]
        return choice.best(choice.restrict(self.model.expected_rewards(context), mask))

    def _choose(self, belief: ExpertWeights, asked: Asked, propensity: bool) -> Choice:
        weights = states.probabilities(belief.log_weights)
        advice = self._advice(asked.context, asked.eligible)
        expert = choice.draw(weights, asked.rng)
        action = choice.pick(advice[_sessions(advice), expert], asked.rng)
        chance = (weights * _share(advice, action)).sum(axis=1)
        return Choice(action, expert, chance, "exact")

    def _learn(self, belief: ExpertWeights, outcome: Outcome) -> ExpertWeights:
        if outcome.decision.propensity is None:
            raise ValueError(
                "EXP4 learns from the probability of the action that was played: pass it as "
                "Decision.logged(action, propensity=...)"
            )
        advice = self._advice(outcome.context, outcome.decision.eligible)
        low, high = self.reward_range
        loss = (high - outcome.reward) / (high - low) / outcome.decision.propensity
        losses = belief.losses + _share(advice, outcome.action) * loss[:, None]
        rounds = belief.rounds + outcome.moves
        rate = self._rate(rounds + 1, advice.shape[2])
        return ExpertWeights(-rate[:, None] * losses, losses, rounds)

    def _rate(self, rounds: FloatArray, n_actions: int) -> FloatArray:
        if self.rate is not None:
            return np.full_like(rounds, self.rate)
        n = rounds if self.horizon is None else np.full_like(rounds, self.horizon)
        rate: FloatArray = np.sqrt(2 * math.log(self.model.n_states) / (n * n_actions))
        return rate

    def _probabilities(self, belief: ExpertWeights, asked: Asked) -> ActionProbabilities:
        weights = states.probabilities(belief.log_weights)
        advice = choice.shares(self._advice(asked.context, asked.eligible))
        return ActionProbabilities((weights[:, None, :] @ advice)[:, 0], "exact")


def _sessions(advice: BoolArray) -> int | IntArray:
    """Return the index of the first axis of advice: 0 if all sessions share it."""
    return 0 if len(advice) == 1 else np.arange(len(advice))


def _share(advice: BoolArray, action: IntArray) -> FloatArray:
    """Return the probability that each expert recommends the played action: `(n, S)`."""
    played = advice[_sessions(advice), :, action]
    ties = np.count_nonzero(advice) > advice.shape[0] * advice.shape[1]
    share: FloatArray = played / (np.count_nonzero(advice, axis=2) if ties else 1)
    return share
