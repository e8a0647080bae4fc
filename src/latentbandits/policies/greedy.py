"""Posterior-mean greedy: no exploration of its own, a strong baseline where contexts vary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.protocol import Context, Model
from latentbandits.policies.checked import Choice, best_probabilities, choose_best
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.latent import JointPolicy


@dataclass(frozen=True, eq=False)
class mmGreedy(JointPolicy):
    """argmax_a of sum_s P(s) E[mu(a, x, s, theta) | s], on the joint belief of mmTS.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mmGreedy(GaussianArms([[0.9, 0.1], [0.2, 0.3]], noise=0.5, spread=0.1))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([0])
    """

    model: Model

    def _mean(self, belief: JointBelief, context: Context) -> FloatArray:
        return joint.mean_rewards(self.model, belief, context)

    def _choose(
        self,
        belief: JointBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice:
        state = belief.log_weights.argmax(axis=1)
        return choose_best(self._mean(belief, context), eligible, rng, propensity, state)

    def _probabilities(
        self,
        belief: JointBelief,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities:
        return best_probabilities(self._mean(belief, context), eligible)
