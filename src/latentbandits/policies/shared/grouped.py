"""LinUCB shared by groups of users that are given: one for all, one per user, or an oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.visit import Visit
from latentbandits.policies.checked import Asked, Outcome
from latentbandits.policies.shared import chunks
from latentbandits.policies.shared.base import (
    Ridge,
    ScoredPopulation,
    add_to_ridge,
    empty_ridge,
    optimistic_index,
)


class GroupedBelief(NamedTuple):
    """One regression for every group."""

    rounds: FloatArray  # (B,)
    groups: tuple[Ridge, ...]  # chunks of groups


@dataclass(frozen=True, eq=False)
class GroupedLinUCB(ScoredPopulation[GroupedBelief]):
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

    def _group(self, visit: Visit) -> IntArray:
        population = 0 if len(self._labels) == 1 else np.arange(len(visit.user))
        group: IntArray = self._labels[population, visit.user]
        return group

    def _scores(self, belief: GroupedBelief, asked: Asked) -> FloatArray:
        ridge = chunks.take(belief.groups, self._group(asked.context))
        return optimistic_index(ridge, asked.context.features, self.alpha, belief.rounds)

    def _learn(self, belief: GroupedBelief, outcome: Outcome) -> GroupedBelief:
        x = outcome.context.features[np.arange(len(outcome.action)), outcome.action]
        group = self._group(outcome.context)
        ridge = add_to_ridge(chunks.take(belief.groups, group), x, outcome.reward)
        return GroupedBelief(belief.rounds + 1, chunks.put(belief.groups, group, ridge))
