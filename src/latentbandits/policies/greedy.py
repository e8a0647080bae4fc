"""Greedy play of the posterior mean: a strong baseline where varying contexts explore enough."""

from __future__ import annotations

from dataclasses import dataclass

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief
from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.models.protocol import Context, Model
from latentbandits.policies.latent import JointPolicy, LargestPosteriorScore


@dataclass(frozen=True, eq=False)
class mmGreedy(LargestPosteriorScore[JointBelief], JointPolicy):
    """Play argmax_a of sum_s P(s) E[mu(a, x, s, theta) | s], on the joint belief of mmTS.

    Args:
        model: with uncertain parameters.

    >>> import numpy as np
    >>> from latentbandits.models import GaussianArms
    >>> policy = mmGreedy(GaussianArms([[0.9, 0.1], [0.2, 0.3]], noise=0.5, spread=0.1))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([0])
    """

    model: Model

    def _scores(
        self, belief: JointBelief, context: Context, eligible: BoolArray | None
    ) -> FloatArray:
        return joint.mean_rewards(self.model, belief, context)
