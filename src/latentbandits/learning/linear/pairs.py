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
    order = _by_pair(log)
    users, actions = log.users[order], log.actions[order]
    first = np.ones(log.n_events, np.bool_)  # the first row of each pair
    first[1:] = (users[1:] != users[:-1]) | (actions[1:] != actions[:-1])
    if first.all():
        return Pairs(log.users, log.actions, log.rewards, None, 0.0)
    which = np.empty(log.n_events, np.int64)  # the pair of each row
    which[order] = np.cumsum(first) - 1
    counts = np.bincount(which).astype(np.float64)
    means = np.bincount(which, log.rewards) / counts
    scatter = float(np.sum((log.rewards - means[which]) ** 2))
    return Pairs(users[first], actions[first], means, counts, scatter)


def _by_pair(log: Log) -> IntArray:
    """Return the positions of the rows sorted by user and then by action.

    The rows of a log are sorted by user. Each user's rows are sorted alone, as the columns of a
    sparse matrix, because the time per row of one sort of all rows grows with their number.
    """
    from scipy.sparse import csr_array

    shape = (log.n_users, log.n_actions)
    entries = np.arange(log.n_events), log.actions, log.starts
    rows = csr_array(entries, shape=shape, copy=True)  # sorted in place
    rows.sort_indices()
    order: IntArray = rows.data
    return order
