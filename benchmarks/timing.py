"""Time contestants side by side: repeats take turns, so that a busy machine disturbs all alike.

Time is the processor's, not the wall's: contestants have one thread each, and so other programs on
the machine count as little as they can.
"""

from __future__ import annotations

import gc
import importlib
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.report import Report, Table, Target

REPEATS = 10


@dataclass(frozen=True)
class Contestant:
    """`prepare` is not timed; what it returns is, and makes `rounds` decisions and updates."""

    name: str
    rounds: int
    prepare: Callable[[], Callable[[], object]]


class Timing(NamedTuple):
    """Microseconds per decision-and-update over the repeats."""

    best: float
    median: float


def race(contestants: Iterable[Contestant], repeats: int = REPEATS) -> dict[str, Timing]:
    """Every contestant `repeats` times, in turns, after one turn to warm up."""
    field = list(contestants)
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in field}
    for turn in range(repeats + 1):
        for contestant in field:
            elapsed = _seconds(contestant.prepare())
            if turn > 0:
                seconds[contestant.name].append(elapsed / contestant.rounds)
    return {
        name: Timing(1e6 * min(values), 1e6 * statistics.median(values))
        for name, values in seconds.items()
    }


def _seconds(play: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        play()
        return time.process_time() - start
    finally:
        gc.enable()


def optional(
    package: str, make: Callable[[], list[Contestant]], notes: list[str]
) -> list[Contestant]:
    """The contestants of a package that may not be there; then a note says so."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        notes.append(
            f"{package} could not be imported ({error}): its rows are missing and its targets "
            "were NOT measured. Install the peers with: python -m pip install --group bench"
        )
        return []
    return make()


class Comparison(NamedTuple):
    """Best time of `slower` over best time of `faster`, against a bound from the specification."""

    slower: str
    faster: str
    at_least: float | None = None
    at_most: float | None = None


def report(
    title: str,
    timings: dict[str, Timing],
    comparisons: Iterable[Comparison],
    notes: Iterable[str] = (),
) -> Report:
    """Timings as a table and comparisons as targets; a ratio with a missing side has no value."""
    table = Table(
        "µs per decision-and-update",
        ("contestant", "best", "median"),
        tuple((name, timing.best, timing.median) for name, timing in timings.items()),
    )
    targets = []
    for slower, faster, at_least, at_most in comparisons:
        measured = slower in timings and faster in timings
        ratio = timings[slower].best / timings[faster].best if measured else None
        targets.append(Target(f"{slower} / {faster}", ratio, at_least=at_least, at_most=at_most))
    return Report(title, (table,), tuple(targets), tuple(notes))
