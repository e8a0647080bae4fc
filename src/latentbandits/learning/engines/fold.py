"""The protocol of a learner for an engine, and the addition of the sums of buckets.

A learner is two pure functions. `summarise(partition, parameters)` sums over the users of one
partition; `step(sums, parameters)` makes the next parameters from the sums of all. All rows of a
user lie in one bucket (`user_hash`), and buckets are added in a fixed binary tree over their
numbers. So an engine may add any aligned block of buckets wherever it likes, and the sum is the
same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, cast

from latentbandits.learning.logs import Log

Parameters = TypeVar("Parameters")
Sums = TypeVar("Sums")
_Contra = TypeVar("_Contra", contravariant=True)
_Sums = TypeVar("_Sums", covariant=True)


class Summariser(Protocol[_Contra, _Sums]):
    """The half of a learner that engines run.

    A summariser that has an attribute `prepare` gets `prepare(partition)` in place of the
    partition. It must not depend on the parameters, so that an engine may keep its result for the
    next pass, for as long as the object `prepare` itself is kept.
    """

    def summarise(self, partition: Any, parameters: _Contra, /) -> _Sums:
        """Sum over the users of `partition`: a tree (tuples, dicts) of arrays that add."""


class FoldLearner(Protocol[Parameters, Sums]):
    """A learner whose every pass over the log is `summarise` of each partition and one `step`."""

    def summarise(self, partition: Log, parameters: Parameters, /) -> Sums:
        """Sum over the users of `partition`."""

    def step(self, sums: Sums, parameters: Parameters, /) -> Parameters:
        """Make the next parameters from the sums of all users."""


Change = Callable[[Log], Log]
"""A change of the rows of one partition, user by user: rewards transformed, users left out."""


def add(one: Any, other: Any) -> Any:
    """Return the sum of two trees of the same structure; None is the sum of nobody.

    >>> add((1, {"a": 2}), (10, {"a": 20}))
    (11, {'a': 22})
    """
    if one is None or other is None:
        return one if other is None else other
    if isinstance(one, tuple) and type(one).__add__ is not tuple.__add__:
        return one + other  # a named tuple that says itself how it adds
    if isinstance(one, tuple):
        branches = [add(a, b) for a, b in zip(one, other, strict=True)]
        return type(one)(*branches) if hasattr(one, "_fields") else tuple(branches)
    if isinstance(one, dict):
        return {name: add(one[name], other[name]) for name in one}
    return one + other


def tree_sum(found: Iterator[tuple[int, Sums]], n: int) -> Sums | None:
    """Add sums that come with their numbers below `n`, a power of two, in ascending order.

    The tree is fixed: 0 + 1, 2 + 3, then (0 + 1) + (2 + 3), ...; numbers may be missing.

    >>> tree_sum(iter([(0, 1.0), (2, 2.0), (3, 3.0)]), 4)
    6.0
    """
    ahead = [next(found, None)]

    def between(low: int, high: int) -> Any:
        if ahead[0] is None or ahead[0][0] >= high:
            return None
        if high - low == 1:
            _, sums = cast("tuple[int, Any]", ahead[0])
            ahead[0] = next(found, None)
            return sums
        middle = (low + high) // 2
        return add(between(low, middle), between(middle, high))

    return cast("Sums | None", between(0, n))


def prepared(summariser: Any, partition: Log) -> Any:
    """Return what `summarise` takes: the partition, or what the summariser prepares of it."""
    prepare = getattr(summariser, "prepare", None)
    return partition if prepare is None else prepare(partition)
