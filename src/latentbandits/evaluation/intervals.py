"""Intervals over sessions: at a fixed size, and valid at every look."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from latentbandits.evaluation.log import EvaluationError
from latentbandits.models.checks import FloatArray

TIGHTEST_AT = 5_000
"""Sessions n* near which a confidence sequence is tightest, where no other number is set. It must
not depend on the data: a sequence that is tuned anew at each look does not hold its level."""

SAME = 1e-9
"""Differences below this share of the rewards' scale are rounding, and decide nothing."""

Verdict = Literal["better", "worse", "identical", "no measurable difference"]


class Interval(NamedTuple):
    """A value with its standard error and interval."""

    value: float
    stderr: float
    low: float
    high: float


def normal_interval(value: float, influence: FloatArray, level: float = 0.95) -> Interval:
    """Return the normal interval of an estimate from its influence values.

    Args:
        value: the estimate.
        influence: one influence value per session, `(n_sessions,)`, of mean 0.
        level: level of the interval.

    >>> normal_interval(1.0, np.array([1.0, -1.0, 1.0, -1.0])).stderr.__round__(3)
    0.577
    """
    n = len(influence)
    stderr = float(np.std(influence, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    return normal(value, stderr, level)


def normal(value: float, stderr: float, level: float = 0.95) -> Interval:
    """Return the normal interval of an estimate with a standard error.

    >>> [round(bound, 2) for bound in normal(1.0, 0.1)[2:]]
    [0.8, 1.2]
    """
    from scipy.special import ndtri

    width = float(ndtri(0.5 + check_level(level) / 2)) * stderr
    return Interval(value, stderr, value - width, value + width)


def sequence_interval(
    value: float, influence: FloatArray, level: float = 0.95, tightest_at: int = TIGHTEST_AT
) -> Interval:
    """Return the confidence sequence's interval of an estimate from its influence values.

    Args:
        value: the estimate.
        influence: one influence value per session, `(n_sessions,)`, of mean 0.
        level: level of the interval, at all sample sizes together.
        tightest_at: number of sessions n* near which the interval is tightest.

    >>> low, high = sequence_interval(0.0, np.tile([1.0, -1.0], 2500))[2:]
    >>> round(high / (1.96 / math.sqrt(5000)), 2)
    1.55
    """
    n = len(influence)
    stderr = float(np.std(influence, ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    return sequence(value, stderr, n, level, tightest_at)


def sequence(
    value: float, stderr: float, n: int, level: float = 0.95, tightest_at: int = TIGHTEST_AT
) -> Interval:
    """Return the confidence sequence's interval, valid at all sample sizes at once.

    Waudby-Smith et al. 2021 (asymptotic confidence sequences): mean ± sd sqrt(2 (n h^2 + 1) /
    (n^2 h^2) log(sqrt(n h^2 + 1) / alpha)), tightest near n* sessions. One sequence covers one
    candidate; `level_of_candidate` gives the level of each of several. An unknown standard error
    (infinite) gives the whole line.

    >>> [round(bound, 3) for bound in sequence(1.0, 0.01, 5_000)[2:]]
    [0.97, 1.03]
    """
    if not math.isfinite(stderr) or n < 2:
        return Interval(value, math.inf, -math.inf, math.inf)
    width = stderr * math.sqrt(n) * sequence_width(n, level, tightest_at)
    return Interval(value, stderr, value - width, value + width)


def sequence_width(n: int, level: float = 0.95, tightest_at: int = TIGHTEST_AT) -> float:
    """Return the half-width of the confidence sequence after `n` sessions, for a unit deviation."""
    if tightest_at < 1:
        raise EvaluationError(
            f"the sequence must be tightest at 1 session or more; got {tightest_at}"
        )
    alpha = 1 - check_level(level)
    h2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tightest_at
    scale = n * h2 + 1
    return math.sqrt(2 * scale / (n**2 * h2) * math.log(math.sqrt(scale) / alpha))


def level_of_candidate(level: float, number: int) -> float:
    """Return the level of the `number`-th candidate against one incumbent.

    alpha / (k (k + 1)) sums to alpha over all candidates k = 1, 2, ...

    >>> round(level_of_candidate(0.95, 1), 4), round(level_of_candidate(0.95, 2), 4)
    (0.975, 0.9917)
    """
    if number < 1:
        raise EvaluationError(f"candidates are counted from 1; got {number}")
    return 1 - (1 - check_level(level)) / (number * (number + 1))


def is_rounding(interval: Interval, scale: float) -> bool:
    """Return whether the whole interval lies within `SAME` of 0, in units of the rewards' scale."""
    return max(abs(interval.low), abs(interval.high)) <= SAME * scale


def verdict(interval: Interval, scale: float) -> Verdict:
    """Put the interval of a difference in words.

    >>> verdict(Interval(1e-16, 1e-18, 9e-17, 1.1e-16), scale=1.0)
    'identical'
    >>> verdict(Interval(0.2, 0.05, 0.1, 0.3), scale=1.0)
    'better'
    """
    if is_rounding(interval, scale):
        return "identical"
    if interval.low > 0:
        return "better"
    if interval.high < 0:
        return "worse"
    return "no measurable difference"


class SessionMean(NamedTuple):
    """The mean reward of a group and its error over sessions, infinite while it is not known."""

    mean: float
    stderr: float
    n_sessions: int


def compare_groups(
    groups: Mapping[str, SessionMean | None],
    main: str,
    level: float = 0.95,
    tightest_at: int = TIGHTEST_AT,
) -> dict[str, Interval]:
    """Return the difference in means of `main` and every other live group, with its sequence.

    Groups are independent samples. The intervals hold at every look and for all groups together:
    each has the level 1 - (1 - level) / (number of other groups). A group without sessions (None)
    is not compared, but counts among them, so that levels do not change when its first one comes.

    >>> groups = {"policy": SessionMean(1.0, 0.01, 900), "holdout": SessionMean(1.2, 0.02, 100)}
    >>> compare_groups(groups, "policy")["holdout"].high < 0
    True
    """
    others = {name: group for name, group in groups.items() if name != main}
    ours = groups.get(main)
    if ours is None:
        return {}
    each = 1 - (1 - check_level(level)) / max(len(others), 1)
    return {
        name: sequence(
            ours.mean - theirs.mean,
            math.hypot(ours.stderr, theirs.stderr),
            ours.n_sessions + theirs.n_sessions,
            each,
            tightest_at,
        )
        for name, theirs in others.items()
        if theirs is not None
    }


def check_level(level: float) -> float:
    """Return `level` if it is a probability between 0 and 1, exclusive."""
    if not 0 < level < 1:
        raise EvaluationError(f"level must lie between 0 and 1, for instance 0.95; got {level}")
    return level
