"""The gate: is the candidate better than the current model, on sessions that no fit has seen?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from latentbandits.evaluation import sequence_interval
from latentbandits.evaluation.evaluate import MIN_ESS
from latentbandits.evaluation.intervals import Interval, sequence_width
from latentbandits.loop.comparison import Side, compare
from latentbandits.models.checks import FloatArray

__all__ = ["Side", "Verdict", "compare_groups", "judge"]

_MOST_SESSIONS = 10**9


@dataclass(frozen=True)
class Verdict:
    """The gate's answer.

    Attributes:
        activate: whether the interval's lower end exceeds the margin.
        reason: one sentence for people.
        difference: candidate minus current, reward per session in rounds 1..horizon.
        stderr: of the difference.
        low, high: the confidence sequence's interval, valid at every look.
        current, candidate: the two estimates.
        horizon: rounds that were compared.
        n_sessions: held-out sessions.
        ess: the least effective sample size within the horizon, of both policies.
        sessions_needed: held-out sessions after which a difference as large as the measured one
            would be decided; None where it is decided, or the estimate is zero.
    """

    activate: bool
    reason: str
    difference: float
    stderr: float
    low: float
    high: float
    current: float
    candidate: float
    horizon: int
    n_sessions: int
    ess: float
    sessions_needed: int | None

    def as_json(self) -> dict[str, Any]:
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def judge(
    current: Side,
    candidate: Side,
    *,
    margin: float = 0.0,
    level: float = 0.95,
    unrewarded: float | None = None,
    draws: int = 100,
    seed: int = 0,
) -> Verdict:
    """Compare two policies on logged sessions, paired by session, and say whether to activate.

    The estimate is SNDR. The interval is a confidence sequence, so that looking again after more
    sessions keeps its level for this candidate. It is about the rounds 1..h in which a gain would
    be seen best (`Comparison.clearest`). In the longest comparison that the effective sample size
    allows, the candidate's estimate must be above the margin too.

    Args:
        current: the model and policy in use.
        candidate: their possible successor. Neither may have been fitted on the logged sessions.
        margin: the gain that a candidate must show.
        level: of the interval.
        unrewarded: the reward of decisions that got none; None drops them.
        draws: posterior draws that Thompson sampling counts.
        seed: of the draws.
    """
    comparison = compare(current, candidate, unrewarded=unrewarded, draws=draws, seed=seed)
    longest = comparison.longest
    horizon = comparison.clearest()
    difference, influence = comparison.difference(horizon)
    n = len(influence)
    interval = sequence_interval(difference, influence, level, max(n, 100))
    ess = float(comparison.sizes[:horizon].min())
    later, _ = comparison.difference(longest)
    better = interval.low > margin
    reason = _reason(interval, margin, ess, n)
    if better and later <= margin:
        reason = (
            f"the candidate is better in rounds 1-{horizon}, but in rounds 1-{longest} the "
            f"difference per session is {later:.4g}, which is not above the margin {margin:g}"
        )
    return Verdict(
        activate=bool(ess >= MIN_ESS and better and later > margin),
        reason=reason,
        difference=difference,
        stderr=interval.stderr,
        low=interval.low,
        high=interval.high,
        current=comparison.current.up_to(horizon)[0],
        candidate=comparison.candidate.up_to(horizon)[0],
        horizon=horizon,
        n_sessions=n,
        ess=ess,
        sessions_needed=_needed(interval, influence, margin, level),
    )


def compare_groups(
    rewards: Mapping[str, FloatArray], main: str, level: float = 0.95
) -> dict[str, Interval]:
    """Return the difference of `main` from every other live group, with its sequence.

    `rewards` holds the reward per session of each group. Groups are independent samples; the
    intervals hold at every look.
    """
    comparisons = {}
    main_rewards = rewards.get(main, np.empty(0))
    for name, other in rewards.items():
        if name == main or len(main_rewards) < 2 or len(other) < 2:
            continue
        total = len(main_rewards) + len(other)
        influence = np.concatenate(
            [
                (main_rewards - main_rewards.mean()) * total / len(main_rewards),
                (other.mean() - other) * total / len(other),
            ]
        )
        difference = float(main_rewards.mean() - other.mean())
        comparisons[name] = sequence_interval(difference, influence, level, max(total, 100))
    return comparisons


def _reason(interval: Interval, margin: float, ess: float, n_sessions: int) -> str:
    if ess < MIN_ESS:
        return (
            f"{n_sessions} held-out sessions carry an effective sample size of {ess:.0f}, below "
            f"{MIN_ESS:.0f}: too few, or too little exploration, to judge"
        )
    span = f"[{interval.low:.4g}, {interval.high:.4g}]"
    if interval.low > margin:
        return f"the candidate is better: the difference per session lies in {span}"
    if interval.high < margin:
        return f"the candidate is not better: the difference per session lies in {span}"
    return f"not decided: the difference per session lies in {span}, margin {margin:g}"


def _needed(interval: Interval, influence: FloatArray, margin: float, level: float) -> int | None:
    """Return the least number of sessions whose sequence would exclude the margin."""
    gap = abs(interval.value - margin)
    deviation = float(np.std(influence, ddof=1)) if len(influence) > 1 else math.nan
    decided = interval.low > margin or interval.high < margin
    if decided or gap == 0 or not math.isfinite(deviation) or deviation == 0:
        return None
    low, high = len(influence), _MOST_SESSIONS
    if deviation * sequence_width(high, level, high) > gap:
        return None
    while low < high:
        middle = (low + high) // 2
        if deviation * sequence_width(middle, level, middle) < gap:
            high = middle
        else:
            low = middle + 1
    return low
