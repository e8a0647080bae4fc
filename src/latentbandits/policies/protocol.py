"""What a policy is: a frozen value with three pure methods."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.policies.decision import Decision

BeliefT = TypeVar("BeliefT")


class Policy(Protocol[BeliefT]):
    """State is data and randomness is an argument: `decide` and `update` change nothing.

    A policy of your own needs these three methods and nothing else; `latentbandits.testing`
    checks that it keeps their promises.
    """

    def init(self, n_sessions: int = 1) -> BeliefT:
        """What sessions that have seen nothing believe."""

    def decide(
        self,
        belief: BeliefT,
        context: ArrayLike | None,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
        propensity: bool = True,
    ) -> Decision:
        """An eligible action for every session."""

    def update(
        self, belief: BeliefT, context: ArrayLike | None, decision: Decision, reward: ArrayLike
    ) -> BeliefT:
        """What the sessions believe after their rewards: a new value, or ValueError."""


AnyPolicy = Policy[Any]


def policy_name(policy: AnyPolicy) -> str:
    """The `name` of a policy; that of its class if it has none."""
    return str(getattr(policy, "name", type(policy).__name__))


def learns_from_any(policy: AnyPolicy) -> bool:
    """Whether a policy can learn from the decisions of other policies (see `CheckedPolicy`)."""
    return getattr(policy, "learns_from", "any") == "any"
