"""The log in memory, one partition for each bucket of users."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from threadpoolctl import threadpool_limits

from latentbandits.learning import user_hash
from latentbandits.learning.backends.backend import AnyLog, Change, Engine, prepared
from latentbandits.learning.logs.rows import Log
from latentbandits.processors import cores


class MemoryEngine(Engine):
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


def engine_of(log: AnyLog) -> Engine:
    """Return the log if it is an engine already, else an engine for it in memory."""
    return log if isinstance(log, Engine) else MemoryEngine(log)


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
