"""The protocol of a learner for an engine, and the addition of the sums of buckets.

A learner is two pure functions. `summarise(partition, parameters)` sums over the users of one
partition; `step(sums, parameters)` makes the next parameters from the total. All rows of a user are
in one bucket (`user_hash`), and buckets are added in a fixed binary tree over their numbers. An
engine may therefore add any aligned block of buckets on any machine, and the total is bitwise
identical.
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
    """The part of a learner that engines run.

    A summariser with an attribute `prepare` is given `prepare(partition)` instead of the partition.
    `prepare` must not depend on the parameters. An engine may then reuse its result in the next
    pass, as long as the object `prepare` itself exists.
    """

    def summarise(self, partition: Any, parameters: _Contra, /) -> _Sums:
        """Sum over the users of `partition`; return a tree (tuples, dicts) of arrays that add."""


class FoldLearner(Protocol[Parameters, Sums]):
    """A learner whose passes call `summarise` on each partition and `step` once."""

    def summarise(self, partition: Log, parameters: Parameters, /) -> Sums:
        """Sum over the users of `partition`."""

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
