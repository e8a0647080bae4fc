"""Latent order bandits: each state is known by its order of actions only.

Sessions of one state may differ in level and scale, which a model of mean rewards cannot express.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latentbandits.models.arms.gaussian import ArmStatistics
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.protocol import Context, KnownModel
from latentbandits.policies.latent.sampling import Thompson
from latentbandits_related.structured import ArmCounts


def order_distance(counts: FloatArray, means: FloatArray) -> FloatArray:
    """Return min over v_1 <= ... <= v_K of sum_a N_a (v_a - m_a)^2, over the last axis.

    Weighted isotonic regression by the max-min formula: v_a is the largest, over starts i <= a, of
    the least average of i..j over ends j >= a. An action with N_a = 0 does not count.

    >>> order_distance(np.array([1.0, 3.0]), np.array([2.0, 1.0]))
    np.float64(0.75)
    """
    n_actions = means.shape[-1]
    weight = np.concatenate([np.zeros((*counts.shape[:-1], 1)), counts.cumsum(axis=-1)], axis=-1)
    total = np.concatenate(
        [np.zeros((*counts.shape[:-1], 1)), (counts * means).cumsum(axis=-1)], axis=-1
    )
    mass = weight[..., None, 1:] - weight[..., :-1, None]  # total count of i..j
    sums = total[..., None, 1:] - total[..., :-1, None]
    average = np.divide(sums, mass, out=np.full(sums.shape, np.inf), where=mass > 0)
    upper = np.triu(np.ones((n_actions, n_actions), np.bool_))
    average = np.where(upper, average, np.inf)
    least = np.minimum.accumulate(average[..., ::-1], axis=-1)[..., ::-1]
    fitted = np.where(upper, least, -np.inf).max(axis=-2)
    fitted = np.where(counts > 0, fitted, means)
    distance: FloatArray = (counts * (fitted - means) ** 2).sum(axis=-1)
    return distance


@dataclass(frozen=True, eq=False)
class LatentOrderTS(ArmCounts, Thompson[Any]):
    """lobTS after Carlsson, Mwai & Johansson (2026): draw a state by how well its order fits.

    P(s) is proportional to P1(s) exp(-d_s / (2 sigma^2)), with d_s the distance of the average
    rewards from the order of state s (`order_distance`); then play the best action of s. Only the
    order of the model's means is used, so any shift or positive scale of a session's rewards is
    fine; `noise` is that of the model. The rule is from a third party's restatement.

    >>> from latentbandits.models import GaussianArms
    >>> policy = LatentOrderTS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).propensity
    array([0.5])
    """

    model: KnownModel

    @cached_property
    def _order(self) -> IntArray:
        """Each state's actions from worst to best, `(1 or n, S, K)`."""
        return np.argsort(self.model.expected_rewards(None), axis=2, kind="stable")

    def _log_weights(self, belief: ArmStatistics) -> FloatArray:
        means = belief.sums / np.maximum(belief.counts, 1)
        n = len(means)
        order = np.broadcast_to(self._order, (n, *self._order.shape[1:]))
        counts = np.take_along_axis(belief.counts[:, None], order, axis=2)
        distance = order_distance(counts, np.take_along_axis(means[:, None], order, axis=2))
        return self.model.log_state_prior - distance / (2 * self.model.noise**2)

    def _draw_rewards(
        self, belief: ArmStatistics, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        return self.model.expected_rewards(context, state)

    def shift_state_prior(self, belief: ArmStatistics, shift: FloatArray) -> ArmStatistics:
        """Return the belief as it is: it has no weights of states to shift."""
        return belief
