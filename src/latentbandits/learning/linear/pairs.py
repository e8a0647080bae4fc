"""The rewards of a log summed by pair of user and action; repeated pairs get larger weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.learning.logs import Log
from latentbandits.models.checks import FloatArray, IntArray


class Pairs(NamedTuple):
    """Distinct pairs of user and action, sorted by user and then by action."""

    users: IntArray  # (n_pairs,)
    actions: IntArray  # (n_pairs,)
    means: FloatArray  # (n_pairs,): mean reward of the pair
    counts: FloatArray | None  # (n_pairs,): number of rewards of the pair; None means one each
    scatter: float  # sum over all rewards of their squared distance from their pair's mean


def sum_pairs(log: Log) -> Pairs:
    """Sum the rewards of every pair that occurs in `log`.

    >>> from latentbandits.learning.logs import read_log
    >>> log = read_log({"u": [1, 1, 2], "a": ["x", "x", "y"], "r": [1, 3, 5]}, "u", "a", "r")
    >>> pairs = sum_pairs(log)
    >>> pairs.means, pairs.counts, pairs.scatter
    (array([2., 5.]), array([2., 1.]), 2.0)
    """
    if log.n_duplicates == 0:
        return Pairs(log.users, log.actions, log.rewards, None, 0.0)
    codes, which = np.unique(log.users * log.n_actions + log.actions, return_inverse=True)
    counts = np.bincount(which).astype(np.float64)
    means = np.bincount(which, log.rewards) / counts
    scatter = float(np.sum((log.rewards - means[which]) ** 2))
    users, actions = np.divmod(codes, log.n_actions)
    return Pairs(users, actions, means, counts, scatter)
