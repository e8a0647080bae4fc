"""Intervals over sessions: at a fixed size, and valid at every look."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from latentbandits.evaluation.log import EvaluationError
from latentbandits.models.checks import FloatArray


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
        level: of the interval.

    >>> normal_interval(1.0, np.array([1.0, -1.0, 1.0, -1.0])).stderr.__round__(3)
    0.577
    """
    from scipy.special import ndtri

    n = len(influence)
    stderr = float(np.std(influence, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    width = float(ndtri(0.5 + check_level(level) / 2)) * stderr
    return Interval(value, stderr, value - width, value + width)


def sequence_interval(
    value: float, influence: FloatArray, level: float = 0.95, tightest_at: int = 5_000
) -> Interval:
    """Return the confidence sequence's interval: valid at all sample sizes at once.

    Waudby-Smith et al. 2021 (asymptotic confidence sequences): mean ± sd sqrt(2 (n h^2 + 1) /
    (n^2 h^2) log(sqrt(n h^2 + 1) / alpha)), tightest near n* sessions. One
    sequence covers one candidate: each new candidate starts its own.

    Args:
        value: the estimate.
        influence: one influence value per session, `(n_sessions,)`, of mean 0.
        level: of the interval, at all sample sizes together.
        tightest_at: number of sessions n* near which the interval is tightest.

    >>> low, high = sequence_interval(0.0, np.tile([1.0, -1.0], 2500))[2:]
    >>> round(high / (1.96 / math.sqrt(5000)), 2)
    1.55
    """
    n = len(influence)
    stderr = float(np.std(influence, ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    width = stderr * math.sqrt(n) * sequence_width(n, level, tightest_at)
    return Interval(value, stderr, value - width, value + width)


def sequence_width(n: int, level: float = 0.95, tightest_at: int = 5_000) -> float:
    """Return the half-width of the confidence sequence after `n` sessions, for a unit deviation."""
    alpha = 1 - check_level(level)
    h2 = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tightest_at
    scale = n * h2 + 1
    return math.sqrt(2 * scale / (n**2 * h2) * math.log(math.sqrt(scale) / alpha))


def check_level(level: float) -> float:
    """Return `level` if it is a probability between 0 and 1, exclusive."""
    if not 0 < level < 1:
        raise EvaluationError(f"level must lie between 0 and 1, for instance 0.95; got {level}")
    return level
