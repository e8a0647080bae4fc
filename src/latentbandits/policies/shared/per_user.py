"""Any policy of one session, played for each user of a population on its own, or for all as one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray, positive_count
from latentbandits.models.protocol import KnownModel
from latentbandits.models.trees import leaves, map_leaves
from latentbandits.models.visit import Visit, check_users
from latentbandits.policies.checked import Asked, CheckedPolicy, Choice, Outcome
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import PopulationPolicy


class PerUserBelief(NamedTuple):
    """The inner policy's belief of every user."""

    rounds: FloatArray  # (B,)
    users: tuple[Any, ...]  # chunks of users: the arrays of the inner belief


@dataclass(frozen=True, eq=False)
class PerUser(PopulationPolicy[PerUserBelief]):
    """`policy` for each of `n_users` users on its own; with one user, one policy for all.

    The baseline that learns nothing across users: each user's belief is a session of `policy`. With
    `n_users=1` and `shared=True` all users of the population share that session.

    Args:
        policy: any policy of one session.
        n_users: number of users of the population.
        shared: whether all users share one belief.

    >>> from latentbandits.policies import TS
    >>> policy = PerUser(TS(n_actions=3), n_users=5)
    >>> visit = Visit(np.array([4, 0]))
    >>> policy.decide(policy.init(2), visit, np.random.default_rng(0)).action.shape
    (2,)
    """

    policy: CheckedPolicy[Any]
    n_users: int
    shared: bool = False

    def __post_init__(self) -> None:
        positive_count("n_users", self.n_users)

    @property
    def name(self) -> str:
        return f"{'Shared' if self.shared else 'PerUser'}({self.policy.name})"

    @property
    def model_or_none(self) -> KnownModel | None:
        return self.policy.model_or_none

    @cached_property
    def _start(self) -> Any:
        return self.policy.init(1)

    def init(self, n_sessions: int = 1) -> PerUserBelief:
        n = positive_count("n_sessions", n_sessions)
        row = tuple(np.asarray(leaf)[0] for leaf in leaves(self._start))
        return PerUserBelief(np.zeros(n), chunks.repeat(row, n, 1 if self.shared else self.n_users))

    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        if not isinstance(context, Visit):
            raise ValueError(
                "a population policy needs to know who asks: pass Visit(user, features); "
                f"got {type(context).__name__}"
            )
        user = check_users(context.user, n_sessions, self.n_users)
        features, n_actions = self.policy.checked_context(context.features, n_sessions)
        return Visit(np.zeros_like(user) if self.shared else user, features), n_actions

    def _check_reward(self, reward: FloatArray) -> None:
        self.policy._check_reward(reward)

    def _user(self, belief: PerUserBelief, user: IntArray) -> Any:
        """Return the belief of the asking users in the form of the inner policy."""
        arrays = iter(chunks.take(belief.users, user))
        return map_leaves(lambda leaf: next(arrays), self._start)

    def _choose(self, belief: PerUserBelief, asked: Asked, propensity: bool) -> Choice:
        user_belief = self._user(belief, asked.context.user)
        return self.policy._choose(
            user_belief, asked._replace(context=asked.context.features), propensity
        )

    def _learn(self, belief: PerUserBelief, outcome: Outcome) -> PerUserBelief:
        user_belief = self._user(belief, outcome.context.user)
        after = self.policy._learn(user_belief, outcome._replace(context=outcome.context.features))
        users = chunks.put(belief.users, outcome.context.user, tuple(leaves(after)))
        return PerUserBelief(belief.rounds + 1, users)

    def _probabilities(self, belief: PerUserBelief, asked: Asked) -> ActionProbabilities:
        user_belief = self._user(belief, asked.context.user)
        return self.policy._probabilities(
            user_belief, asked._replace(context=asked.context.features)
        )
