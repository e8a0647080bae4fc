"""Information-directed sampling on the beliefs of mTS and mmTS (beyond the paper)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentbandits.beliefs import states
from latentbandits.beliefs.information import (
    FEW_ACTIONS,
    Best,
    best_actions,
    minimal_ratio_mixture,
    regret_and_information,
    scenario_rewards,
    supports,
)
from latentbandits.beliefs.joint import JointBelief
from latentbandits.beliefs.known import KnownBelief
from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import blocks
from latentbandits.models.protocol import Context, KnownModel, Model
from latentbandits.policies import decision
from latentbandits.policies.checked import Asked, Choice, JointPolicy, KnownPolicy, PosteriorPolicy
from latentbandits.policies.decision import ActionProbabilities


class Scenarios(NamedTuple):
    """Mean rewards that are possible, and their probabilities."""

    rewards: FloatArray  # (1 or n, m, n_actions)
    weights: FloatArray  # (n, m)
    eligible: BoolArray | None  # (n, n_actions)
    best: Best | None = None  # the best actions of every scenario, if already computed


class InformationDirected(PosteriorPolicy[Any], ABC):
    """Draw the action from the mixture of least information ratio over weighted scenarios."""

    @abstractmethod
    def _scenarios(self, belief: Any, context: Context, eligible: BoolArray | None) -> Scenarios:
        """Return mean rewards that are possible, and their weights."""

    def _choose(self, belief: Any, asked: Asked, propensity: bool) -> Choice:
        action, chance = _draw(self._scenarios(belief, asked.context, asked.eligible), asked.rng)
        state = belief.log_weights.argmax(axis=1)
        return Choice(action, state, *((chance, "exact") if propensity else (None, "none")))

    def _probabilities(self, belief: Any, asked: Asked) -> ActionProbabilities:
        mixture = _mixture(self._scenarios(belief, asked.context, asked.eligible))
        return ActionProbabilities(mixture, "exact")


@dataclass(frozen=True, eq=False)
class mIDS(InformationDirected, KnownPolicy):
    """Information-directed sampling with a known model: the states are the scenarios, exactly.

    Args:
        model: a model of latent states, taken as true.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mIDS(GaussianArms([[0.9, 0.1], [0.1, 0.9]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity
    array([0.5])
    """

    model: KnownModel

    @cached_property
    def _best(self) -> Best:
        """The best actions of every state, for a model without contexts."""
        return best_actions(self.model.expected_rewards(None), None)

    def _scenarios(
        self, belief: KnownBelief, context: Context, eligible: BoolArray | None
    ) -> Scenarios:
        rewards = self.model.expected_rewards(context)
        known = self._best if context is None and eligible is None else None
        return Scenarios(rewards, states.probabilities(belief.log_weights), eligible, known)


@dataclass(frozen=True, eq=False)
class mmIDS(InformationDirected, JointPolicy):
    """Information-directed sampling with an uncertain model: `draws` of (s, theta) are scenarios.

    The draws come from nodes that `seed` fixes, the same in every round and session
    (`beliefs/information.py`). So the action probabilities are a function of the belief:
    propensities are exact, and an action has probability zero only if this policy never plays it
    there.

    Args:
        model: a model of latent states with uncertain parameters.
        draws: number of scenarios.
        seed: of the nodes that the draws are made from.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mmIDS(GaussianArms([[0.9, 0.1], [0.1, 0.9]], noise=0.5, spread=0.1))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity_kind
    'exact'
    """

    model: Model
    draws: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive_count("draws", self.draws)
        checks.count("seed", self.seed)

    def _scenarios(
        self, belief: JointBelief, context: Context, eligible: BoolArray | None
    ) -> Scenarios:
        rewards = scenario_rewards(self.model, belief, context, self.draws, self.seed)
        return Scenarios(rewards, np.full(rewards.shape[:2], 1 / self.draws), eligible)


def _mixture(scenarios: Scenarios) -> FloatArray:
    """Return the probability of every action, `(n, n_actions)`."""
    return minimal_ratio_mixture(*_costs_and_gains(scenarios), scenarios.eligible)


def _draw(scenarios: Scenarios, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Draw an action for each session: actions and their probabilities, both `(n,)`."""
    regret, information = _costs_and_gains(scenarios)
    if regret.shape[1] <= FEW_ACTIONS:
        probabilities = minimal_ratio_mixture(regret, information, scenarios.eligible)
        action = decision.draw(probabilities, rng)
        return action, decision.at(probabilities, action)
    action, chance = np.empty(len(regret), np.int64), np.empty(len(regret))
    uniform = rng.random(len(regret))
    for i, (places, shares) in enumerate(supports(regret, information, scenarios.eligible)):
        upper = shares.cumsum()
        chosen = int(upper.searchsorted(uniform[i] * upper[-1], side="right"))
        action[i], chance[i] = places[chosen], shares[chosen]
    return action, chance


def _costs_and_gains(scenarios: Scenarios) -> tuple[FloatArray, FloatArray]:
    """Return D and v, both `(n, n_actions)`, in blocks of sessions."""
    rewards, weights, eligible, known = scenarios
    n, (m, n_actions) = len(weights), rewards.shape[1:]
    if n == 1:
        best = best_actions(rewards, eligible) if known is None else known
        return regret_and_information(rewards, weights, best)
    regret, information = np.empty((n, n_actions)), np.empty((n, n_actions))
    for block in blocks(n, m * n_actions):
        part = rewards if len(rewards) == 1 else rewards[block]
        if n_actions <= m:
            # Contiguous scenarios of each action make operations over actions fast.
            part = np.ascontiguousarray(part.swapaxes(1, 2)).swapaxes(1, 2)
        if known is None:
            best = best_actions(part, None if eligible is None else eligible[block])
        else:
            best = known if len(known.place) == 1 else known.rows(block)
        regret[block], information[block] = regret_and_information(part, weights[block], best)
    return regret, information
