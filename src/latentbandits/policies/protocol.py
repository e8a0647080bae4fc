"""The protocol of a policy: a frozen value with three pure methods."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.policies.decision import Decision

BeliefT = TypeVar("BeliefT")


class Policy(Protocol[BeliefT]):
    """A policy: beliefs are data and randomness is an argument, so no method changes anything.

    A policy of your own needs these three methods and nothing else; check it with
    `latentbandits.testing.check_policy`.
    """

    def init(self, n_sessions: int = 1) -> BeliefT:
        """Return the belief of `n_sessions` sessions without rewards: a tree of arrays."""

    def decide(
        self,
        belief: BeliefT,
        context: ArrayLike | None,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
        propensity: bool = True,
    ) -> Decision:
        """Choose an eligible action for every session.

        Args:
            belief: of n sessions.
            context: None, or features `(n, n_actions, n_features)`.
            rng: the source of all randomness.
            eligible: mask of the actions that may be chosen, `(n, n_actions)`; None: all.
            propensity: whether the decision needs the probability of its action.
        """

    def update(
        self, belief: BeliefT, context: ArrayLike | None, decision: Decision, reward: ArrayLike
    ) -> BeliefT:
        """Return the belief after the rewards `(n,)`; ValueError if an input is impossible."""


AnyPolicy = Policy[Any]


def policy_name(policy: AnyPolicy) -> str:
    """Return the `name` of a policy; that of its class if it has none."""
    return str(getattr(policy, "name", type(policy).__name__))


def learns_from_any(policy: AnyPolicy) -> bool:
    """Tell whether a policy can learn from others' decisions (see `CheckedPolicy`)."""
    return getattr(policy, "learns_from", "any") == "any"
