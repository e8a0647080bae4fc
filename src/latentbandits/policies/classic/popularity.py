"""Policies that treat every user alike: the best action on average, and any action at random."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import FloatArray, session_count
from latentbandits.models.protocol import Context, KnownModel
from latentbandits.policies.checked import Asked, LargestScore, Outcome
from latentbandits.policies.latent.base import check_context, check_model


class Rounds(NamedTuple):
    """The belief of a policy that does not learn: it counts rounds."""

    counts: FloatArray  # (n_sessions,)


class _Unpersonalised(LargestScore[Rounds], ABC):
    """A policy that learns nothing from a session's rewards."""

    model: KnownModel

    def __post_init__(self) -> None:
        check_model(self, self.model)

    @property
    def model_or_none(self) -> KnownModel:
        return self.model

    def init(self, n_sessions: int = 1) -> Rounds:
        return Rounds(np.zeros(session_count(n_sessions, self.model.n_sessions)))

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        return check_context(self.model, context, n_sessions)

    def _learn(self, belief: Rounds, outcome: Outcome) -> Rounds:
        return Rounds(belief.counts + outcome.moves)

    @property
    def _learns_unseen(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Popularity(_Unpersonalised):
    """Play argmax_a of sum_s P1(s) mu_hat(a, x, s): the best action for users on average.

    For actions with features this is the best action of the linear model with one state, whose
    weights are the average weights of the states.

    Args:
        model: gives the mean reward of every action in every state, and the states' prior.

    >>> from latentbandits.models import GaussianArms
    >>> policy = Popularity(GaussianArms([[0.9, 0.1, 0.6], [0.2, 0.8, 0.6]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([2])
    """

    model: KnownModel

    def _scores(self, belief: Rounds, asked: Asked) -> FloatArray:
        prior = np.exp(self.model.log_state_prior)
        scores = (prior[:, None, :] @ self.model.expected_rewards(asked.context))[:, 0]
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
