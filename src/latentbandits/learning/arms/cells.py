"""Sufficient statistics of every (user, action) pair, in partitions of whole users.

The rewards of a pair are summed, not averaged, so 200 impressions have the weight of 200. Each
pass of the learner reads only partitions. The users of one hash bucket (`user_hash`) form one
partition, so sums are identical on every engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.user_hash import Keys
from latentbandits.models.arms.learnable import Learnable
from latentbandits.models.checks import FloatArray

_DENSE = 0.1  # fraction of nonzero entries above which a dense array is faster than a sparse one


@dataclass(frozen=True, eq=False)
class Partition:
    """Statistics of some users, `(n_users, n_statistics * n_actions)`, as a dense or sparse array.

    The columns of a statistic are adjacent: column k * n_actions + a is statistic k of action a.
    `weights` (n_users, n_replicates) are the users' bootstrap weights.
    """

    statistics: Any  # FloatArray or scipy.sparse.csr_array
    squares: FloatArray  # (n_actions,): sums of `family.squares` of rewards
    log_base: float  # sum of log b(r)
    keys: Keys  # (n_users,)
    n_actions: int
    weights: FloatArray | None = None
    weighted_squares: FloatArray | None = None  # (n_replicates, n_actions)

    @property
    def n_users(self) -> int:
        return len(self.keys)

    def dense(self) -> FloatArray:
        """Return the statistics as a dense array `(n_users, n_statistics, n_actions)`."""
        full = self.statistics if isinstance(self.statistics, np.ndarray) else (
            self.statistics.toarray()
        )  # fmt: skip
        return full.reshape(len(full), -1, self.n_actions)


class Totals(NamedTuple):
    """Sums over the whole log."""

    statistics: FloatArray  # (R, n_actions, n_statistics); R = 1, or the bootstrap replicates
    squares: FloatArray  # (R, n_actions)
    n_users: FloatArray  # (R,)
    log_base: float

    def __add__(self, other: Totals) -> Totals:  # type: ignore[override]
        return Totals(*(a + b for a, b in zip(self, other, strict=True)))  # type: ignore[operator]


@dataclass(frozen=True, eq=False)
class Prepare:
    """A callable that turns a bucket's log into the partition that every pass reads.

    With `n_replicates`, every user gets that many bootstrap weights.
    """

    family: Learnable
    n_replicates: int = 0
    seed: int = 0

    def __call__(self, log: Log) -> Partition:
        family = self.family
        rewards = np.asarray(log.rewards)
        squares = family.squares(rewards)
        weights = weighted = None
        if self.n_replicates:
            weights = user_hash.bootstrap_weights(log.keys, self.n_replicates, self.seed)
            weighted = np.stack(
                [_by_action(log, squares * weight[log.users]) for weight in weights.T]
            )
        base = family.log_base_measure(rewards)
        return Partition(
            _statistics(log, family.summed(rewards)),
            _by_action(log, squares),
            float(np.broadcast_to(base, rewards.shape).sum()),
            log.keys,
            log.n_actions,
            weights,
            weighted,
        )


@dataclass(frozen=True, eq=False)
class TotalsPass:
    """The first pass over a log, which sums statistics over all users."""

    prepare: Prepare

    def summarise(self, partition: Partition, parameters: None) -> Totals:
        return totals(partition, self.prepare.family)


def totals(partition: Partition, family: Learnable) -> Totals:
    """Sum a partition's statistics over its users; this is `summarise` of the first pass."""
    shape = (-1, family.n_statistics, partition.n_actions)
    if partition.weights is None:
        summed = np.asarray(partition.statistics.sum(axis=0)).reshape(shape)
        squares, n_users = partition.squares[None], np.array([float(partition.n_users)])
    else:
        assert partition.weighted_squares is not None
        summed = np.asarray((partition.statistics.T @ partition.weights).T).reshape(shape)
        squares, n_users = partition.weighted_squares, partition.weights.sum(axis=0)
    return Totals(summed.swapaxes(1, 2), squares, n_users, partition.log_base)


def _by_action(log: Log, values: FloatArray) -> FloatArray:
    return np.bincount(log.actions, values, minlength=log.n_actions).astype(np.float64)


def _statistics(log: Log, statistics: FloatArray) -> Any:
    from scipy.sparse import csr_array

    n_columns = statistics.shape[1] * log.n_actions
    present = statistics != 0
    event, which = np.nonzero(present)
    column = which * log.n_actions + log.actions[event]
    values = statistics[present]
    if len(values) >= _DENSE * log.n_users * n_columns:
        cell = log.users[event] * n_columns + column
        full = np.bincount(cell, values, minlength=log.n_users * n_columns)
        return full.reshape(log.n_users, n_columns)
    sparse = csr_array((values, (log.users[event], column)), shape=(log.n_users, n_columns))
    sparse.sum_duplicates()
    return sparse
