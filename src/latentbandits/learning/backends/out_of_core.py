"""The log on disk, one bucket of users in memory at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

from latentbandits.learning.backends.backend import (
    Change,
    Engine,
    Parameters,
    Summariser,
    Sums,
    prepared,
    tree_sum,
)
from latentbandits.learning.backends.partition_files import Partitions
from latentbandits.report.report import Progress, Silent


class OutOfCoreEngine(Engine):
    """A log on disk, whose partitions are read one by one in every pass."""

    name: ClassVar[str] = "out_of_core"

    def __init__(
        self,
        partitions: Partitions,
        changes: tuple[Change, ...] = (),
        progress: Progress | None = None,
        passes: Iterator[int] | None = None,
    ) -> None:
        self.action_ids = partitions.action_ids
        self.n_buckets = partitions.n_buckets
        self._partitions, self._changes = partitions, changes
        self._progress = Silent() if progress is None else progress
        self._passes = itertools.count(1) if passes is None else passes

    def fold(self, summariser: Summariser[Parameters, Sums], parameters: Parameters) -> Sums:
        sums: Sums | None = tree_sum(self._summed(summariser, parameters), self.n_buckets)
        assert sums is not None
        return sums

    def mapped(self, change: Change) -> OutOfCoreEngine:
        changes = (*self._changes, change)
        return OutOfCoreEngine(self._partitions, changes, self._progress, self._passes)

    def _summed(self, summariser: Any, parameters: Any) -> Iterator[tuple[int, Any]]:
        self._progress.start(f"pass {next(self._passes)} over the partitions", self.n_buckets)
        for number in range(self.n_buckets):
            partition = self._partitions.load(number)
            for change in self._changes:
                partition = None if partition is None else change(partition)
            if partition is not None and partition.n_users:
                yield number, summariser.summarise(prepared(summariser, partition), parameters)
            self._progress.advance(1)
