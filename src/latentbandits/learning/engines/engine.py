"""The engine interface: a log in buckets of users, and folds over it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.engines.fold import Change, Parameters, Summariser, Sums
from latentbandits.learning.log_summary import LogSummariser, LogSummary
from latentbandits.learning.logs import Log, join_logs
from latentbandits.learning.user_hash import HOLD_OUT, SAMPLE, Keys
from latentbandits.models.checks import IntArray


class Engine(ABC):
    """A log over whose users learners are folded; `changes` are applied to every partition."""

    name: ClassVar[str]
    action_ids: tuple[str, ...]
    n_buckets: int

    @abstractmethod
    def fold(self, summariser: Summariser[Parameters, Sums], parameters: Parameters) -> Sums:
        """Return the sums of `summariser` over all nonempty buckets."""

    @abstractmethod
    def mapped(self, change: Change) -> Engine:
        """Return the same log with `change` applied to every partition."""

    @property
    def n_actions(self) -> int:
        return len(self.action_ids)

    @cached_property
    def summary(self) -> LogSummary:
        """The sizes of the log, and its rewards by action."""
        return self.fold(LogSummariser(), None)

    @property
    def n_users(self) -> int:
        return self.summary.n_users

    @property
    def n_events(self) -> int:
        return self.summary.n_events

    @property
    def action_counts(self) -> IntArray:
        """The number of rewards of every action, `(n_actions,)`."""
        return self.summary.action_counts

    def chosen_keys(self, size: int, seed: int) -> Keys:
        """Return the keys of `size` users sampled by hash, ascending; all if there are fewer."""
        return self.fold(Smallest(size, seed, SAMPLE), None).keys()

    def users(self, keys: Keys) -> Log:
        """Load the users with these keys, in the order of their keys."""
        taken = self.fold(Take(np.sort(keys)), None)
        return taken.log(self.action_ids)

    def sample(self, size: int, seed: int) -> Log:
        """Load `size` users sampled by hash; all if there are fewer."""
        return self.users(self.chosen_keys(size, seed))

    def split(self, n_held_out: int, seed: int) -> tuple[Engine, Log]:
        """Return the log without `n_held_out` users sampled by hash, and the log of those users."""
        keys = self.fold(Smallest(n_held_out, seed, HOLD_OUT), None).keys()
        return self.mapped(Without(keys)), self.users(keys)


AnyLog: TypeAlias = Log | Engine
"""A log in memory, or on an engine."""


def summary_of(log: AnyLog) -> LogSummary:
    """Return the sizes of a log, and its rewards by action."""
    return log.summary if isinstance(log, Engine) else LogSummariser().summarise(log, None)


@dataclass(frozen=True, eq=False)
class Without:
    """A change that removes the users with the given keys."""

    keys: Keys

    def __call__(self, log: Log) -> Log:
        out = np.isin(log.keys, self.keys)
        return log.of_users(np.flatnonzero(~out)) if out.any() else log


@dataclass(frozen=True)
class Merged:
    """A change that merges several rewards of one user for one action (`Log.merged`)."""

    duplicates: Any

    def __call__(self, log: Log) -> Log:
        return log.merged(self.duplicates)


@dataclass(frozen=True, eq=False)
class _Least:
    """The smallest hashes seen so far, with the users' keys."""

    size: int
    hashes: Keys
    users: Keys

    def __add__(self, other: _Least) -> _Least:
        hashes = np.concatenate([self.hashes, other.hashes])
        order = np.argsort(hashes, kind="stable")[: self.size]
        return _Least(self.size, hashes[order], np.concatenate([self.users, other.users])[order])

    def keys(self) -> Keys:
        return np.sort(self.users)


@dataclass(frozen=True)
class Smallest:
    """A summariser that finds the users with the smallest hashes for a seed and a purpose."""

    size: int
    seed: int
    purpose: int

    def summarise(self, partition: Log, parameters: None) -> _Least:
        nobody = np.zeros(0, np.uint64)
        hashes = user_hash.mix(partition.keys, self.seed, self.purpose)
        return _Least(self.size, nobody, nobody) + _Least(self.size, hashes, partition.keys)


@dataclass(frozen=True, eq=False)
class _UserLogs:
    """Logs of some users of each bucket."""

    parts: tuple[Log, ...]

    def __add__(self, other: _UserLogs) -> _UserLogs:
        return _UserLogs(self.parts + other.parts)

    def log(self, action_ids: tuple[str, ...]) -> Log:
        """Join the parts into one log, with users sorted by key."""
        return join_logs(self.parts, action_ids)


@dataclass(frozen=True, eq=False)
class Take:
    """A summariser that loads the rows of the users with the given keys, which are ascending."""

    keys: Keys

    def summarise(self, partition: Log, parameters: None) -> _UserLogs:
        chosen = np.flatnonzero(np.isin(partition.keys, self.keys))
        # The catalogue is known to the engine, so it is not sent with every bucket.
        return _UserLogs((replace(partition.of_users(chosen), action_ids=()),))
