"""`check_learner` and `check_engine`: check a learner against any engine, and an engine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np

from latentbandits.learning.backends.backend import (
    FoldLearner,
    LogEngine,
    MemoryEngine,
    add,
    prepared,
)
from latentbandits.learning.logs.rows import Log
from latentbandits.models.checks import IntArray

TOLERANCE = 1e-9
"""Relative difference of sums, to the largest number of an array, that rounding may explain."""

_PARTS = (2, 5)  # into how many partitions the users are split


def check_learner(
    learner: FoldLearner[Any, Any], parameters: Any, log: Log, *, rows_ordered: bool = False
) -> None:
    """Check that any engine can fold a user's own learner over the users of a log.

    Args:
        learner: `summarise(partition, parameters)` returns sums over the users of a partition, a
            `Log`; `step(sums, parameters)` returns the next parameters. With an attribute
            `prepare`, `summarise` gets `prepare(partition)`.
        parameters: the parameters of a pass.
        log: users to sum over, twenty or more.
        rows_ordered: whether the order of a user's rows may matter (states that move). The order
            of users never may.

    Raises:
        AssertionError: sums of partitions do not add up to the sums of all users; they depend on
            the order of users or rows, or on earlier calls; `summarise` or `step` change their
            arguments; a copy of the learner, as workers get it, finds other sums.

    >>> from latentbandits.learning.generate import generate_arms
    >>> class Mean:
    ...     def summarise(self, partition, parameters):
    ...         return {"sum": partition.rewards.sum(), "n": partition.n_events}
    ...     def step(self, sums, parameters):
    ...         return sums["sum"] / sums["n"]
    >>> check_learner(Mean(), 0.0, generate_arms(n_users=50, n_rounds=5).log)
    """
    assert log.n_users >= 20, f"give a log of at least 20 users; this one has {log.n_users}"
    untouched = copy.deepcopy(parameters)

    def sums(part: Log, one: Any = learner) -> Any:
        return one.summarise(prepared(one, part), parameters)

    whole = sums(log)
    _same(sums(log), whole, "summarise of the same partition, called twice")
    rng = np.random.default_rng(0)
    for n in _PARTS:
        groups = np.array_split(rng.permutation(log.n_users), n)
        _same(_added(sums, log, groups), whole, f"the sums of {n} partitions, added,")
    alone = [np.array([u]) for u in range(log.n_users)]
    _same(_added(sums, log, alone), whole, "the sums of partitions of one user each, added,")
    _same(sums(log.of_users(rng.permutation(log.n_users))), whole, "the sums of shuffled users")
    if not rows_ordered:
        _same(sums(_shuffled_rows(log, rng)), whole, "the sums of shuffled rows of each user")
    _same(sums(log, copy.deepcopy(learner)), whole, "the sums of a copy of the learner")
    _same(parameters, untouched, "the parameters, which summarise must not change,")

    before = copy.deepcopy(whole)
    after = learner.step(whole, parameters)
    _same(whole, before, "the sums, which step must not change,")
    _same(parameters, untouched, "the parameters, which step must not change,")
    _same(learner.step(before, parameters), after, "step of the same sums, called twice")
    sums_of_next = learner.summarise(prepared(learner, log), after)
    _same_shapes(sums_of_next, whole, "the sums under the parameters that step returns")


def check_engine(engine: LogEngine, log: Log, tolerance: float = TOLERANCE) -> None:
    """Check that an engine with `log` gives the same results as the engine in memory.

    AssertionError if sizes, users chosen by hash, their rows, or sums of a learner differ.

    Args:
        engine: the engine to check.
        log: the log of the engine.
        tolerance: relative difference of sums that is allowed.
    """
    ours = MemoryEngine(log)
    assert engine.action_ids == ours.action_ids, "the engine numbers the actions differently"
    assert engine.n_buckets == ours.n_buckets, (
        f"the engine has {engine.n_buckets} buckets instead of {ours.n_buckets}"
    )
    pairs: list[tuple[LogEngine, LogEngine]] = [(engine, ours)]
    size = max(1, log.n_users // 5)
    kept, held_out = engine.split(size, seed=1)
    our_kept, our_held_out = ours.split(size, seed=1)
    _same_log(held_out, our_held_out, "the users held out")
    _same_log(engine.sample(size, 2), ours.sample(size, 2), "a sample of users")
    pairs.append((kept, our_kept))
    for mine, theirs in pairs:
        for name in ("n_users", "n_duplicates", "n_repeated_rows"):
            value, expected = getattr(mine.summary, name), getattr(theirs.summary, name)
            assert value == expected, f"{name} is {value} instead of {expected}"
        for name in ("action_counts", "action_sums", "lengths", "users_of_length"):
            _same(getattr(mine.summary, name), getattr(theirs.summary, name), name, tolerance)
        probe = _Probe()
        _same(mine.fold(probe, 0.5), theirs.fold(probe, 0.5), "the sums of a learner", tolerance)


class _Probe:
    """Sums that depend on every row, on its user and on its place among the user's rows."""

    def summarise(self, partition: Log, parameters: float) -> dict[str, Any]:
        place = np.arange(partition.n_events) - partition.starts[partition.users]
        weight = (partition.keys[partition.users] >> np.uint64(40)).astype(np.float64)
        value = weight * np.exp(-parameters * place) * (partition.rewards + partition.actions)
        return {"sum": np.bincount(partition.actions, value, minlength=partition.n_actions)}


def _added(sums: Callable[[Log], Any], log: Log, groups: Iterable[IntArray]) -> Any:
    return reduce(add, (sums(log.of_users(group)) for group in groups))


def _shuffled_rows(log: Log, rng: np.random.Generator) -> Log:
    order = np.lexsort((rng.random(log.n_events), log.users))
    return Log(log.users, log.actions[order], log.rewards[order], log.user_ids, log.action_ids)


def _same_log(one: Log, other: Log, what: str) -> None:
    assert one.user_ids == other.user_ids, f"{what}: other users, or in another order"
    for name in ("users", "actions", "rewards"):
        _same(getattr(one, name), getattr(other, name), f"{name} of {what}", 0.0)


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for name in tree for leaf in _leaves(tree[name])]
    if isinstance(tree, (tuple, list)):
        return [leaf for branch in tree for leaf in _leaves(branch)]
    if hasattr(tree, "__dataclass_fields__"):
        return [leaf for name in tree.__dataclass_fields__ for leaf in _leaves(getattr(tree, name))]
    return [] if tree is None else [tree]


def _same(one: Any, other: Any, what: str, tolerance: float = TOLERANCE) -> None:
    _same_shapes(one, other, what)
    for a, b in zip(_leaves(one), _leaves(other), strict=True):
        if isinstance(a, (str, bytes)) or callable(a):
            continue
        x, y = np.asarray(a), np.asarray(b)
        if not np.issubdtype(y.dtype, np.number):
            assert np.array_equal(x, y), f"{what}: {x} instead of {y}"
            continue
        largest = float(np.abs(y).max()) if y.size else 0.0
        if not np.allclose(x, y, rtol=tolerance, atol=tolerance * largest, equal_nan=True):
            worst = np.unravel_index(np.abs(x - y).argmax(), y.shape)
            raise AssertionError(f"{what}: {x[worst]} instead of {y[worst]}")


def _same_shapes(one: Any, other: Any, what: str) -> None:
    mine, theirs = _leaves(one), _leaves(other)
    assert len(mine) == len(theirs), f"{what}: {len(mine)} arrays instead of {len(theirs)}"
    for a, b in zip(mine, theirs, strict=True):
        assert np.shape(a) == np.shape(b), f"{what}: shape {np.shape(a)} instead of {np.shape(b)}"
