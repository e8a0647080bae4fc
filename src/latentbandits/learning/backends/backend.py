"""The engine interface: a log in buckets of users, and folds over it; and the engine in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from threadpoolctl import threadpool_limits

from latentbandits.learning import user_hash
from latentbandits.learning.logs.rows import Log, LogSummariser, LogSummary, join_logs
from latentbandits.learning.user_hash import HOLD_OUT, SAMPLE, Keys
from latentbandits.models.checks import IntArray
from latentbandits.processors import cores

# The protocol of a learner for an engine, and the addition of the sums of buckets.
#
# A learner is two pure functions. `summarise(partition, parameters)` sums over the users of one
# partition; `step(sums, parameters)` makes the next parameters from the total. All rows of a user
# are in one bucket (`user_hash`), and buckets are added in a fixed binary tree over their numbers.
# An engine may therefore add any aligned block of buckets on any machine, and the total is bitwise
# identical.

Parameters = TypeVar("Parameters")
Sums = TypeVar("Sums")
_Contra = TypeVar("_Contra", contravariant=True)
_Sums = TypeVar("_Sums", covariant=True)


class Summariser(Protocol[_Contra, _Sums]):
    """The part of a learner that engines run.

    A summariser with an attribute `prepare` is given `prepare(partition)` instead of the partition.
    `prepare` must not depend on the parameters. An engine may then reuse its result in the next
    pass, as long as the object `prepare` itself exists.
    """

    def summarise(self, partition: Any, parameters: _Contra, /) -> _Sums:
        """Sum over the users of `partition`; return a tree (tuples, dicts) of arrays that add."""


class FoldLearner(Summariser[Parameters, Sums], Protocol[Parameters, Sums]):
    """A learner whose passes call `summarise` on each partition and `step` once."""

    def step(self, sums: Sums, parameters: Parameters, /) -> Parameters:
        """Make the next parameters from the sums of all users."""


Change = Callable[[Log], Log]
"""A change of the rows of one partition, such as transformed rewards or removed users."""


def add(one: Any, other: Any) -> Any:
    """Return the sum of two trees of the same structure; None is the empty sum.

    >>> add((1, {"a": 2}), (10, {"a": 20}))
    (11, {'a': 22})
    """
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, tuple) and type(one).__add__ is not tuple.__add__:
        return one + other  # a named tuple that defines its own addition
    if isinstance(one, tuple):
        branches = [add(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*branches) if hasattr(one, "_fields") else tuple(branches)
    if isinstance(one, dict):
        return {name: add(one[name], other[name]) for name in one}
    return one + other


def tree_sum(parts: Iterator[tuple[int, Sums]], n: int) -> Sums | None:
    """Add numbered sums, given in ascending order, with numbers below the power of two `n`.

    The tree is fixed: 0 + 1, 2 + 3, then (0 + 1) + (2 + 3), ...; numbers may be missing.

    >>> tree_sum(iter([(0, 1.0), (2, 2.0), (3, 3.0)]), 4)
    6.0
    """
    ahead = [next(parts, None)]

    def between(low: int, high: int) -> Any:
        if ahead[0] is None or ahead[0][0] >= high:
            return None
        if high - low == 1:
            _, sums = cast("tuple[int, Any]", ahead[0])
            ahead[0] = next(parts, None)
            return sums
        middle = (low + high) // 2
        return add(between(low, middle), between(middle, high))

    return cast("Sums | None", between(0, n))


def prepared(summariser: Any, partition: Log) -> Any:
    """Return the argument of `summarise`: the partition, or the result of `prepare` on it."""
    prepare = getattr(summariser, "prepare", None)
    return partition if prepare is None else prepare(partition)


def summed(
    buckets: Iterator[tuple[int, Log]],
    changes: Iterable[Change],
    summariser: Any,
    parameters: Any,
) -> Iterator[tuple[int, Any]]:
    """Yield the number and the sums of every numbered bucket that has users after `changes`."""
    for number, log in buckets:
        for change in changes:
            log = change(log)
        if log.n_users:
            yield number, summariser.summarise(prepared(summariser, log), parameters)


class LogEngine(ABC):
    """A log over whose users learners are folded; `changes` are applied to every partition."""

    name: ClassVar[str]
    action_ids: tuple[str, ...]
    n_buckets: int

    def fold(self, summariser: Summariser[Parameters, Sums], parameters: Parameters) -> Sums:
        """Return the sums of `summariser` over all nonempty buckets."""
        sums: Sums | None = tree_sum(self._summed(summariser, parameters), self.n_buckets)
        assert sums is not None
        return sums

    @abstractmethod
    def _summed(self, summariser: Any, parameters: Any) -> Iterator[tuple[int, Any]]:
        """Yield the number of each nonempty bucket, ascending, and its sums.

        The sums of an aligned block of buckets may have the number of its first bucket.
        """

    @abstractmethod
    def mapped(self, change: Change) -> LogEngine:
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
        return join_logs(self.fold(Take(np.sort(keys)), None).parts, self.action_ids)

    def sample(self, size: int, seed: int) -> Log:
        """Load `size` users sampled by hash; all if there are fewer."""
        return self.users(self.chosen_keys(size, seed))

    def split(self, n_held_out: int, seed: int) -> tuple[LogEngine, Log]:
        """Return the log without `n_held_out` users sampled by hash, and the log of those users."""
        keys = self.fold(Smallest(n_held_out, seed, HOLD_OUT), None).keys()
        return self.mapped(Without(keys)), self.users(keys)


AnyLog: TypeAlias = Log | LogEngine
"""A log in memory, or on an engine."""


def summary_of(log: AnyLog) -> LogSummary:
    """Return the sizes of a log, and its rewards by action."""
    return log.summary if isinstance(log, LogEngine) else LogSummariser().summarise(log, None)


@dataclass(frozen=True, eq=False)
class Without:
    """A change that removes the users with the given keys."""

    keys: Keys

    def __call__(self, log: Log) -> Log:
        out = np.isin(log.keys, self.keys)
        return log.of_users(np.flatnonzero(~out)) if out.any() else log


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
class Collected:
    """A sum that keeps its parts, one or more of each bucket."""

    parts: tuple[Any, ...]

    def __add__(self, other: Collected) -> Collected:
        return Collected(self.parts + other.parts)


@dataclass(frozen=True, eq=False)
class Take:
    """A summariser that loads the rows of the users with the given keys, which are ascending."""

    keys: Keys

    def summarise(self, partition: Log, parameters: None) -> Collected:
        chosen = np.flatnonzero(np.isin(partition.keys, self.keys))
        # The catalogue is known to the engine, so it is not sent with every bucket.
        return Collected((replace(partition.of_users(chosen), action_ids=()),))


class MemoryEngine(LogEngine):
    """A log in memory. Partitions are slices of it; prepared partitions are kept between passes."""

    name: ClassVar[str] = "memory"

    def __init__(self, log: Log, buckets: tuple[int, list[tuple[int, Log]]] | None = None) -> None:
        self.action_ids = log.action_ids
        self._log = log
        self.n_buckets, self._buckets = _bucketed(log) if buckets is None else buckets
        self._kept: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()

    def mapped(self, change: Change) -> MemoryEngine:
        changed = ((number, change(part)) for number, part in self._buckets)
        buckets = [(number, part) for number, part in changed if part.n_users]
        return MemoryEngine(self._log, (self.n_buckets, buckets))

    def _summed(self, summariser: Any, parameters: Any) -> Iterator[tuple[int, Any]]:
        numbers = [number for number, _ in self._buckets]
        parts = self._partitions(summariser)
        if not getattr(summariser, "threaded", False) or len(parts) == 1 or cores() == 1:
            for number, part in zip(numbers, parts, strict=True):
                yield number, summariser.summarise(part, parameters)
            return
        # Threads of linear algebra would compete with these.
        with ThreadPoolExecutor(cores()) as pool, threadpool_limits(1, user_api="blas"):
            sums = pool.map(lambda part: summariser.summarise(part, parameters), parts)
            yield from zip(numbers, sums, strict=True)

    def _partitions(self, summariser: Any) -> list[Any]:
        """Return the partitions for the summariser; each `prepare` runs once."""
        parts = [part for _, part in self._buckets]
        prepare = getattr(summariser, "prepare", None)
        if prepare is None:
            return parts
        if prepare not in self._kept:
            self._kept[prepare] = [prepared(summariser, part) for part in parts]
        return self._kept[prepare]


def engine_of(log: AnyLog) -> LogEngine:
    """Return the log if it is an engine already, else an engine for it in memory."""
    return log if isinstance(log, LogEngine) else MemoryEngine(log)


def _bucketed(log: Log) -> tuple[int, list[tuple[int, Log]]]:
    """Return the number of buckets, and each nonempty bucket's log sorted by user key."""
    n_buckets = user_hash.bucket_count(log.n_users)
    bucket = user_hash.buckets(log.keys, n_buckets)
    order = np.lexsort((log.keys, bucket))
    edges = np.searchsorted(bucket[order], np.arange(n_buckets + 1))
    return n_buckets, [
        (number, log.of_users(order[edges[number] : edges[number + 1]]))
        for number in range(n_buckets)
        if edges[number] < edges[number + 1]
    ]
