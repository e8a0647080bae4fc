"""Sufficient statistics of every (user, action) pair, in partitions of whole users.

Rewards of one pair are added, never averaged: 200 impressions weigh as 200. A partition is all
that a pass of the learner reads, and users of a bucket (`user_hash`) make one partition, so that
sums are the same wherever a partition is summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.arms.families.family import Family
from latentbandits.learning.logs import Log
from latentbandits.learning.user_hash import Keys
from latentbandits.models.checks import FloatArray, IntArray

_DENSE = 0.1  # share of entries above which a full array is faster than a sparse one


@dataclass(frozen=True, eq=False)
class Partition:
    """Statistics of some users, `(n_users, n_statistics * n_actions)`: a full or a sparse array.

    The columns of a statistic lie together: column k * n_actions + a is statistic k of action a.
    `weights` (n_users, n_replicates) are the users' weights in a bootstrap.
    """

    statistics: Any  # FloatArray or scipy.sparse.csr_array
    squares: FloatArray  # (n_actions,): sums of the squares of (standardised) rewards
    log_base: float  # the sum of log b(r)
    keys: Keys  # (n_users,)
    n_actions: int
    weights: FloatArray | None = None
    weighted_squares: FloatArray | None = None  # (n_replicates, n_actions)

    @property
    def n_users(self) -> int:
        return len(self.keys)

    def dense(self) -> FloatArray:
        """The statistics as a full array `(n_users, n_statistics, n_actions)`."""
        full = self.statistics if isinstance(self.statistics, np.ndarray) else (
            self.statistics.toarray()
        )  # fmt: skip
        return full.reshape(len(full), -1, self.n_actions)


class Totals(NamedTuple):
    """Sums over the whole log."""

    statistics: FloatArray  # (R, n_actions, n_statistics); R = 1, or the bootstrap's replicates
    squares: FloatArray  # (R, n_actions)
    n_users: FloatArray  # (R,)
    log_base: float

    def __add__(self, other: Totals) -> Totals:  # type: ignore[override]
        return Totals(*(a + b for a, b in zip(self, other, strict=True)))  # type: ignore[operator]


def partition_log(log: Log, family: Family, *, n_replicates: int = 0, seed: int = 0
                  ) -> list[Partition]:  # fmt: skip
    """Return the partitions of a log, one for each bucket of users, in the order of buckets."""
    keys = user_hash.user_keys(log.user_ids)
    bucket = user_hash.buckets(keys, user_hash.bucket_count(log.n_users))
    return [_partition(log, family, keys, users, n_replicates, seed) for users in _groups(bucket)]


def totals(partition: Partition, family: Family) -> Totals:
    """Sum a partition's statistics over its users: `summarise` of the first pass."""
    shape = (-1, family.n_statistics, partition.n_actions)
    if partition.weights is None:
        summed = np.asarray(partition.statistics.sum(axis=0)).reshape(shape)
        squares, n_users = partition.squares[None], np.array([float(partition.n_users)])
    else:
        assert partition.weighted_squares is not None
        summed = np.asarray((partition.statistics.T @ partition.weights).T).reshape(shape)
        squares, n_users = partition.weighted_squares, partition.weights.sum(axis=0)
    return Totals(summed.swapaxes(1, 2), squares, n_users, partition.log_base)


def sample_users(partitions: Sequence[Partition], size: int, seed: int) -> FloatArray:
    """Return the statistics of `size` users chosen by hash, `(size, n_statistics, n_actions)`."""
    keys = np.concatenate([partition.keys for partition in partitions])
    chosen = user_hash.sample(keys, size, seed)
    ends = np.cumsum([partition.n_users for partition in partitions])
    parts = []
    for partition, end in zip(partitions, ends, strict=True):
        own = chosen[(chosen >= end - partition.n_users) & (chosen < end)]
        if len(own):
            taken = replace(
                partition,
                statistics=partition.statistics[own - (end - partition.n_users)],
                keys=partition.keys[own - (end - partition.n_users)],
            )
            parts.append(taken.dense())
    return np.concatenate(parts)


def _groups(bucket: IntArray) -> list[IntArray]:
    order = np.argsort(bucket, kind="stable")
    edges = np.flatnonzero(np.diff(bucket[order])) + 1
    return [group for group in np.split(order, edges) if len(group)]


def _partition(
    log: Log, family: Family, keys: Keys, users: IntArray, n_replicates: int, seed: int
) -> Partition:
    own = log if len(users) == log.n_users else log.of_users(users)
    if own is log:
        users = np.arange(log.n_users)
    rewards = np.asarray(own.rewards)
    statistics = family.statistics(rewards)
    units = rewards if not hasattr(family, "standardised") else family.standardised(rewards)
    squares = _by_action(own, units**2)
    weights = weighted = None
    if n_replicates:
        weights = user_hash.bootstrap_weights(keys[users], n_replicates, seed)
        weighted = np.stack([_by_action(own, units**2 * weight[own.users]) for weight in weights.T])
    return Partition(
        _statistics(own, statistics),
        squares,
        family.log_base(rewards),
        keys[users],
        log.n_actions,
        weights,
        weighted,
    )


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
