"""Bayes-UCB on the beliefs of mTS and mmTS: play the largest posterior quantile.

Kaufmann, Cappé & Garivier (2012) take the quantile of each arm's own posterior. Here it is that of
the mixture over latent states, sum_s P(s) F_{s,a}(x) = q.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latentbandits.beliefs import joint, states
from latentbandits.beliefs.joint import JointBelief
from latentbandits.beliefs.known import KnownBelief
from latentbandits.beliefs.quantiles import largest_quantiles
from latentbandits.models.checks import FloatArray
from latentbandits.models.numerics.laws import Component, Points
from latentbandits.models.protocol import Context, KnownModel, Model, reward_laws
from latentbandits.policies.checked import Asked
from latentbandits.policies.latent.base import JointPolicy, KnownPolicy, LargestPosteriorScore


class _Quantile(LargestPosteriorScore[Any], ABC):
    """The rule that both policies share; a subclass states the laws of the mean rewards."""

    row_wise: ClassVar[bool] = True
    quantile: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_quantile(self.quantile)

    @abstractmethod
    def _laws(self, belief: Any, context: Context) -> tuple[Component, ...]:
        """Return P(mu(a, x, s, theta) | s) for every action."""

    def _scores(self, belief: Any, asked: Asked) -> FloatArray:
        weights = states.probabilities(belief.log_weights)
        return largest_quantiles(
            self._laws(belief, asked.context), weights, self.quantile, asked.eligible
        )


@dataclass(frozen=True, eq=False)
class mBayesUCB(_Quantile, KnownPolicy):
    """Play the action with the largest q-quantile of mu_hat(a, x, s), s ~ P(s): a known model.

    The quantile is the least of the states' means up to which their probabilities reach
    `quantile`. Deterministic up to ties.

    Args:
        model: a model of latent states, taken as true.
        quantile: q, above 0 and below 1.

    >>> from latentbandits.models import GaussianArms
    >>> model = GaussianArms([[0.9, 0.5], [0.1, 0.5]], noise=0.5, state_prior=[0.2, 0.8])
    >>> rng = np.random.default_rng(0)
    >>> for quantile in (0.5, 0.9):
    ...     policy = mBayesUCB(model, quantile)
    ...     print(policy.decide(policy.init(), None, rng).action)
    [1]
    [0]
    """

    model: KnownModel
    quantile: float = 0.9

    def _laws(self, belief: KnownBelief, context: Context) -> tuple[Component, ...]:
        means = self.model.expected_rewards(context)[:, :, None]
        return (Component(None, Points(means, np.ones((1, means.shape[1], 1)))),)


@dataclass(frozen=True, eq=False)
class mmBayesUCB(_Quantile, JointPolicy):
    """Play the action with the largest q-quantile of its posterior mean reward: an uncertain model.

    The quantile is that of the mixture over states of the model's own laws (normal, Student, beta,
    gamma, inverse gamma, particles), to a relative 1e-11. Deterministic up to ties.

    Args:
        model: a model of latent states with uncertain parameters.
        quantile: q, above 0 and below 1.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mmBayesUCB(GaussianArms([[0.5, 0.4]], noise=0.5, spread=[[0.01, 0.2]]))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([1])
    """

    model: Model
    quantile: float = 0.9

    def _laws(self, belief: JointBelief, context: Context) -> tuple[Component, ...]:
        return reward_laws(self.model, belief.parameters, context)


def check_quantile(quantile: float) -> None:
    """Raise ValueError unless 0 < quantile < 1."""
    number = not isinstance(quantile, bool) and isinstance(quantile, int | float)
    if not number or not 0 < quantile < 1:
        raise ValueError(
            f"quantile must be a number above 0 and below 1, such as 0.9; got {quantile!r}"
        )


# Greedy play of the posterior mean: a strong baseline where varying contexts explore enough.


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

    def _scores(self, belief: JointBelief, asked: Asked) -> FloatArray:
        return joint.mean_rewards(self.model, belief, asked.context)
