"""The gate: is the candidate better than the current model, on sessions that no fit has seen?"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from latentbandits.evaluation.evaluate import MIN_ESS
from latentbandits.evaluation.intervals import (
    TIGHTEST_AT,
    Interval,
    is_rounding,
    level_of_candidate,
    sequence_interval,
    sequence_width,
)
from latentbandits.loop.comparison import Side, compare
from latentbandits.models.checks import FloatArray, IntArray

__all__ = ["Side", "Verdict", "judge"]

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
        typical: rounds of a typical session, the median.
        n_sessions: held-out sessions; those of one user count once.
        ess: the least effective sample size within the horizon, of both policies.
        sessions_needed: held-out sessions after which a difference as large as the measured one
            would be decided; None where it is decided, or the estimate is zero.
        number: which candidate against the current model this is, counted from 1.
        level: of the interval, 1 - alpha / (number (number + 1)).
        tightest_at: sessions near which the confidence sequence is tightest.
        identical: whether the difference is rounding and nothing else.
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
    typical: int
    n_sessions: int
    ess: float
    sessions_needed: int | None
    number: int
    level: float
    tightest_at: int
    identical: bool

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
    compared: float = 0.5,
    level: float = 0.95,
    number: int = 1,
    tightest_at: int = TIGHTEST_AT,
    unrewarded: float | None = None,
    users: IntArray | None = None,
    draws: int = 100,
    seed: int = 0,
) -> Verdict:
    """Compare two policies on logged sessions, paired by session, and say whether to activate.

    The estimate is SNDR. The interval is a confidence sequence, so that looking again after more
    sessions keeps its level for this candidate. It is about the rounds 1..h in which a gain would
    be seen best (`Comparison.clearest`), at least the share `compared` of a typical session. In the
    longest comparison that the effective sample size allows, the candidate's estimate must be above
    the margin too.

    Args:
        current: the model and policy in use.
        candidate: their possible successor. Neither may have been fitted on the logged sessions.
        margin: the gain that a candidate must show.
        compared: the share of a typical session's rounds (the median) without which there is no
            decision.
        level: of all candidates against the current model together.
        number: which of them this is, counted from 1: the k-th has alpha / (k (k + 1)).
        tightest_at: sessions n* near which the confidence sequence is tightest. It must be the same
            at every look.
        unrewarded: the reward of decisions that got none; None has those that came stand for them.
        users: the user of each session: sessions of one user are not independent.
        draws: posterior draws that Thompson sampling counts.
        seed: of the draws.
    """
    comparison = compare(
        current, candidate, unrewarded=unrewarded, users=users, draws=draws, seed=seed
    )
    typical = int(np.ceil(np.median(current.log.lengths)))
    least = max(1, math.ceil(compared * typical))
    longest, window = comparison.longest, comparison.widest(typical)
    taken_over = longest < least and window > 1
    if taken_over:
        horizon = typical
        difference, influence = comparison.difference(typical, window)
        # How much one more round of weights matters says how much all of them might.
        doubt = abs(difference - comparison.difference(typical, window - 1)[0])
        rounds = f"{window} of {typical} rounds compared, later ones by their last {window}"
    else:
        horizon = comparison.clearest(least) if longest >= least else max(longest, 1)
        difference, influence = comparison.difference(horizon)
        doubt = 0.0
        rounds = f"{horizon} of {typical} rounds compared"
    whole = difference if window == 0 else comparison.difference(typical, window)[0]
    n = len(influence)
    level = level_of_candidate(level, number)
    interval = sequence_interval(difference, influence, level, tightest_at)
    interval = interval._replace(low=interval.low - doubt, high=interval.high + doubt)
    observed = current.log.reward[current.log.observed]
    scale = max(float(np.abs(observed).max()), abs(unrewarded or 0.0))
    identical = is_rounding(interval, scale)
    sizes = comparison.sizes(window if taken_over else None)
    activate = False
    if identical:
        reason = "the candidate is identical to the current model: no difference but rounding"
    elif longest < least and not taken_over:
        reason = (
            f"no decision: only {longest} of {typical} rounds of a session could be compared, and "
            f"{least} are needed: {n} held-out sessions carry an effective sample size of "
            f"{sizes[longest]:.0f} in round {longest + 1}, below {MIN_ESS:.0f}: too few, or too "
            "little exploration"
        )
    elif interval.low > margin and whole <= margin:
        reason = (
            f"the candidate is better in rounds 1-{horizon}, but in a whole session of {typical} "
            f"rounds the difference is {whole:.4g}, which is not above the margin {margin:g}"
        )
    else:
        activate = interval.low > margin
        reason = _reason(interval, margin, rounds)
    return Verdict(
        activate=bool(activate),
        reason=reason,
        difference=difference,
        stderr=interval.stderr,
        low=interval.low,
        high=interval.high,
        current=comparison.current.up_to(horizon)[0],
        candidate=comparison.current.up_to(horizon)[0] + difference,
        horizon=horizon,
        typical=typical,
        n_sessions=n,
        ess=float(sizes[:horizon].min()),
        sessions_needed=None
        if identical
        else _needed(interval, influence, margin, level, tightest_at),
        number=number,
        level=level,
        tightest_at=tightest_at,
        identical=identical,
    )


def _reason(interval: Interval, margin: float, rounds: str) -> str:
    lies = (
        f"the difference per session, {rounds}, lies in [{interval.low:.4g}, {interval.high:.4g}]"
    )
    if interval.low > margin:
        return f"the candidate is better: {lies}"
    if interval.high < margin:
        return f"the candidate is not better: {lies}"
    return f"not decided: {lies}, margin {margin:g}"


def _needed(
    interval: Interval, influence: FloatArray, margin: float, level: float, tightest_at: int
) -> int | None:
    """Return the least number of sessions whose sequence would exclude the margin."""
    gap = abs(interval.value - margin)
    deviation = float(np.std(influence, ddof=1)) if len(influence) > 1 else math.nan
    decided = interval.low > margin or interval.high < margin
    if decided or gap == 0 or not math.isfinite(deviation) or deviation == 0:
        return None
    low, high = len(influence), _MOST_SESSIONS
    if deviation * sequence_width(high, level, tightest_at) > gap:
        return None
    while low < high:
        middle = (low + high) // 2
        if deviation * sequence_width(middle, level, tightest_at) < gap:
            high = middle
        else:
            low = middle + 1
    return low
