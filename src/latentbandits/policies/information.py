"""Information-directed sampling on the beliefs of mTS and mmTS (beyond the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.beliefs import states
from latentbandits.beliefs.information import minimal_ratio_mixture, regret_and_information
from latentbandits.beliefs.joint import JointBelief
from latentbandits.beliefs.known import KnownBelief
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.numerics.blocks import blocks
from latentbandits.models.protocol import Context, KnownModel, Model
from latentbandits.policies import choice
from latentbandits.policies.checked import Choice
from latentbandits.policies.decision import ActionProbabilities, PropensityKind
from latentbandits.policies.latent import JointPolicy, KnownPolicy


@dataclass(frozen=True, eq=False)
class mIDS(KnownPolicy):
    """Information-directed sampling with a known model: the states are the scenarios, exactly.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mIDS(GaussianArms([[0.9, 0.1], [0.1, 0.9]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity
    array([0.5])
    """

    model: KnownModel

    def _choose(
        self,
        belief: KnownBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice:
        probabilities = self._probabilities(belief, context, eligible, rng)
        return _draw(probabilities, belief.log_weights, rng, propensity)

    def _probabilities(
        self,
        belief: KnownBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities:
        weights = states.probabilities(belief.log_weights)
        rewards = self.model.expected_rewards(context)
        return ActionProbabilities(_mixture(rewards, weights, eligible), "exact")


@dataclass(frozen=True, eq=False)
class mmIDS(JointPolicy):
    """Information-directed sampling with an uncertain model: `draws` of (s, theta) are scenarios.

    The propensity is exact given those draws ("conditional"); with `propensity_draws` it is
    the average over that many fresh sets of them ("counted").

    >>> from latentbandits.models import GaussianArms
    >>> policy = mmIDS(GaussianArms([[0.9, 0.1], [0.1, 0.9]], noise=0.5, spread=0.1))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity_kind
    'conditional'
    """

    model: Model
    draws: int = 100
    propensity_draws: int = 0

    def __post_init__(self) -> None:
        checks.positive_count("draws", self.draws)

    def _choose(
        self,
        belief: JointBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice:
        conditional = ActionProbabilities(
            self._scenario_mixture(belief, context, eligible, rng), "conditional"
        )
        chosen = _draw(conditional, belief.log_weights, rng, propensity)
        if not propensity or self.propensity_draws < 1:
            return chosen
        counted = self._probabilities(belief, context, eligible, rng).values
        assert chosen.propensity is not None
        total = choice.at(counted, chosen.action) * self.propensity_draws + chosen.propensity
        return chosen._replace(propensity=total / (self.propensity_draws + 1), kind="counted")

    def _probabilities(
        self,
        belief: JointBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities:
        kind: PropensityKind = "counted" if self.propensity_draws > 0 else "conditional"
        sets = [
            self._scenario_mixture(belief, context, eligible, rng)
            for _ in range(max(1, self.propensity_draws))
        ]
        return ActionProbabilities(np.mean(sets, axis=0), kind)

    def _scenario_mixture(
        self,
        belief: JointBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> FloatArray:
        state = states.sample_many(belief.log_weights, self.draws, rng)
        rewards = self.model.sample_rewards(belief.parameters, context, state, rng)
        weights = np.full(state.shape, 1 / self.draws)
        return _mixture(rewards, weights, eligible)


def _mixture(rewards: FloatArray, weights: FloatArray, eligible: BoolArray | None) -> FloatArray:
    """The mixture for each session; `rewards` is `(1 or n, m, n_actions)`, `weights` `(n, m)`."""
    n, (m, n_actions) = len(weights), rewards.shape[1:]
    regret, information = np.empty((n, n_actions)), np.empty((n, n_actions))
    for block in blocks(n, m * n_actions):
        part = rewards if len(rewards) == 1 else rewards[block]
        # The scenarios of an action side by side in memory: what runs over actions is then fast.
        part = np.ascontiguousarray(part.swapaxes(1, 2)).swapaxes(1, 2)
        masked = choice.restrict(part, None if eligible is None else eligible[block, None, :])
        regret[block], information[block] = regret_and_information(
            part, weights[block], masked == masked.max(axis=2, keepdims=True)
        )
    return minimal_ratio_mixture(regret, information, eligible)


def _draw(
    probabilities: ActionProbabilities,
    log_weights: FloatArray,
    rng: np.random.Generator,
    propensity: bool,
) -> Choice:
    action = choice.draw(probabilities.values, rng)
    state = log_weights.argmax(axis=1)
    if not propensity:
        return Choice(action, state, None, "none")
    return Choice(action, state, choice.at(probabilities.values, action), probabilities.kind)
