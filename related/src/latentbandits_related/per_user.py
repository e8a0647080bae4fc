"""Any policy of one session, played separately for each user of a population, or for all as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray, positive_count
from latentbandits.models.numerics.arrays import leaves, map_leaves
from latentbandits.models.protocol import KnownModel
from latentbandits.models.visit import Visit, check_users
from latentbandits.policies.checked import CheckedPolicy, Outcome
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import ServedByOthers, played_features
from latentbandits_related.ridge import (
    ClusteredUCB,
    Ridge,
    add_to_ridge,
    empty_ridge,
)


class PerUserBelief(NamedTuple):
    """The inner policy's belief of every user."""

    rounds: FloatArray  # (B,)
    users: tuple[Any, ...]  # chunks of users: the arrays of the inner belief


@dataclass(frozen=True, eq=False)
class PerUser(ServedByOthers[PerUserBelief]):
    """Play `policy` separately for each of `n_users` users; with one user, one policy for all.

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

    def _serving(self, belief: PerUserBelief, user: IntArray) -> tuple[CheckedPolicy[Any], Any]:
        arrays = iter(chunks.take(belief.users, user))
        return self.policy, map_leaves(lambda leaf: next(arrays), self._start)

    def _learn(self, belief: PerUserBelief, outcome: Outcome) -> PerUserBelief:
        _, user_belief = self._serving(belief, outcome.context.user)
        after = self.policy._learn(user_belief, outcome._replace(context=outcome.context.features))
        users = chunks.put(belief.users, outcome.context.user, tuple(leaves(after)))
        return PerUserBelief(belief.rounds + outcome.moves, users)


# LinUCB shared by groups of users that are given: one for all, one per user, or an oracle.


class GroupedBelief(NamedTuple):
    """One regression for every group."""

    rounds: FloatArray  # (B,)
    groups: tuple[Ridge, ...]  # chunks of groups


@dataclass(frozen=True, eq=False)
class GroupedLinUCB(ClusteredUCB[GroupedBelief]):
    """LinUCB on the pooled rewards of each user's group, with CLUB's index.

    `groups` names the group of every user, `(n_users,)`, or `(B, n_users)` where populations
    differ: zeros are one LinUCB for all, `range(n_users)` one per user, true clusters an oracle.

    Args:
        n_features: number of features of an action.
        groups: group of every user, `(n_users,)` or `(B, n_users)`.
        alpha: factor of the confidence bonus.

    >>> from latentbandits import Decision
    >>> policy = GroupedLinUCB(2, groups=[0, 0, 1])
    >>> visit = Visit(np.array([2]), np.array([[[1.0, 0.0], [0.0, 2.0]]]))
    >>> belief = policy.update(policy.init(), visit, Decision.logged([1]), [1.0])
    >>> policy.decide(belief, visit, np.random.default_rng(0)).action
    array([1])
    """

    order_free: ClassVar[bool] = True

    n_features: int
    groups: ArrayLike
    alpha: float = 0.1
    _labels: IntArray = field(init=False, repr=False)  # (1 or B, n_users)

    def __post_init__(self) -> None:
        checks.positive_count("n_features", self.n_features)
        checks.positive_number("alpha", self.alpha)
        labels = np.asarray(self.groups)
        if labels.dtype.kind not in "iu" or labels.ndim not in (1, 2) or labels.size == 0:
            raise ValueError(
                "groups must be whole numbers of shape (n_users,) or (n_populations, n_users); "
                f"got an array of {labels.dtype} of shape {labels.shape}"
            )
        if labels.min() < 0:
            raise ValueError(f"groups must be numbered from 0; got {labels.min()}")
        object.__setattr__(self, "_labels", np.atleast_2d(labels).astype(np.int64))

    @property
    def n_users(self) -> int:  # type: ignore[override]
        return int(self._labels.shape[1])

    def init(self, n_sessions: int = 1) -> GroupedBelief:
        n = checks.session_count(n_sessions, len(self._labels) if len(self._labels) > 1 else None)
        n_groups = int(self._labels.max()) + 1
        return GroupedBelief(np.zeros(n), chunks.repeat(empty_ridge(self.n_features), n, n_groups))

    def _group(self, user: IntArray) -> IntArray:
        population = 0 if len(self._labels) == 1 else np.arange(len(user))
        group: IntArray = self._labels[population, user]
        return group

    def _regression(self, belief: GroupedBelief, user: IntArray) -> Ridge:
        return chunks.take(belief.groups, self._group(user))

    def _learn(self, belief: GroupedBelief, outcome: Outcome) -> GroupedBelief:
        x = played_features(outcome)
        group = self._group(outcome.context.user)
        ridge = add_to_ridge(chunks.take(belief.groups, group), x, outcome.reward)
        return GroupedBelief(belief.rounds + outcome.moves, chunks.put(belief.groups, group, ridge))
