"""Promotion: is the candidate better than the current model, on sessions that no fit has seen?"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.evaluation import DecisionLog, evaluate
from latentbandits.evaluation.estimators import ESTIMATORS, WeightedLog
from latentbandits.evaluation.evaluate import MIN_ESS
from latentbandits.evaluation.intervals import (
    TIGHTEST_AT,
    Interval,
    is_rounding,
    level_of_candidate,
    sequence_interval,
    sequence_width,
)
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.policies.protocol import AnyPolicy

_MOST_SESSIONS = 10**9
ESTIMATOR = "SNDR"
_LEAST_ERROR = 0.01  # of a difference per session, in units of a reward's noise: below it, rounding


@dataclass(frozen=True, eq=False)
class Side:
    """A policy under comparison, its reward model for DR, and the log in its catalogue's terms.

    Both sides' logs hold the same sessions in the same order.
    """

    policy: AnyPolicy
    model: Any
    log: DecisionLog


@dataclass(frozen=True, eq=False)
class Comparison:
    """The weights of two policies on the same log.

    Attributes:
        weights: the weighted log of the current policy, then of the candidate.
        users: the user of each session, `(n_sessions,)`; None: sessions are independent.
    """

    weights: tuple[WeightedLog, WeightedLog]
    users: IntArray | None = None

    def sizes(self, window: int | None = None) -> FloatArray:
        """Return each round's effective sample size, the smaller of both policies', `(T,)`."""
        one, two = (replace(part, window=window).effective_sample_size for part in self.weights)
        return np.minimum(one, two)

    @property
    def longest(self) -> int:
        """The number of first rounds whose effective sample sizes are all large enough."""
        small = np.flatnonzero(self.sizes() < MIN_ESS)
        return int(small[0]) if len(small) else len(self.sizes())

    def widest(self, rounds: int) -> int:
        """Return the largest window with which the first `rounds` rounds can be compared, or 0."""
        for window in range(min(self.longest, rounds), 0, -1):
            if self.sizes(window)[:rounds].min() >= MIN_ESS:
                return window
        return 0

    def difference(self, rounds: int, window: int | None = None) -> tuple[float, FloatArray]:
        """Return candidate minus current in rounds 1..rounds, and the influence value of each user
        or session.
        """
        (base, base_influence), (value, influence) = (
            ESTIMATORS[ESTIMATOR](replace(part, window=window)).up_to(rounds)
            for part in self.weights
        )
        influence = influence - base_influence
        if self.users is not None:
            by_user = np.bincount(self.users, influence)
            influence = np.asarray(by_user * (len(by_user) / len(influence)), np.float64)
        return value - base, influence

    def clearest(self, least: int) -> int:
        """Return the horizon from `least` to `longest` at which a typical gain would be seen best.

        Two policies earn the same where they choose the same. Elsewhere, the gain from a better
        model of states grows with the round. So the gain of round t is assumed proportional to t
        times the share of decisions on which the policies differ. The error of a sum over rounds is
        computed from the weights, for noise of the same size in every reward. No reward influences
        the horizon: a choice by the differences themselves would favour rounds in which the
        candidate was lucky.
        """
        one, two = self.weights
        before = (one.previous_rho + two.previous_rho) / 2
        differing = (before * np.abs(one.ratio - two.ratio) / 2).mean(axis=0)
        rounds = np.arange(len(differing)) // one.length + 1
        gains = np.cumsum(rounds * differing)
        apart = np.where(one.active, _relative(one.rho) - _relative(two.rho), 0.0)
        errors = np.sqrt(np.cumsum((apart**2).mean(axis=0)))
        power = (gains / np.maximum(errors, _LEAST_ERROR))[one.length - 1 :: one.length]
        return least + int(np.argmax(power[least - 1 : max(self.longest, least)]))


def _relative(weights: FloatArray) -> FloatArray:
    """Return weights divided by their means over sessions, `(n, T)`."""
    means = weights.mean(axis=0)
    relative: FloatArray = weights / np.where(means > 0, means, 1.0)
    return relative


def compare(
    current: Side,
    candidate: Side,
    *,
    unrewarded: float | None = None,
    users: IntArray | None = None,
    seed: int = 0,
) -> Comparison:
    """Weigh both policies on the same sessions (arguments as in `judge`)."""
    n = current.log.n_sessions
    if candidate.log.n_sessions != n:
        raise ValueError(
            f"both sides must see the same sessions; got {n} and {candidate.log.n_sessions}"
        )

    def weigh(side: Side) -> WeightedLog:
        evaluation = evaluate(
            {"policy": side.policy},
            side.log,
            model=side.model,
            estimators=[ESTIMATOR],
            unrewarded=unrewarded,
            seed=seed,
        )
        return evaluation.weighted["policy"]

    return Comparison((weigh(current), weigh(candidate)), users)


@dataclass(frozen=True)
class Verdict:
    """The answer: promote the candidate, or not.

    Attributes:
        activate: whether the interval's lower end exceeds the margin.
        reason: one sentence for people.
        difference: candidate minus current, reward per session in rounds 1..horizon.
        stderr: standard error of the difference. low, high: the confidence sequence's interval,
        valid at every look. current, candidate: the two estimates.
        horizon: rounds that were compared.
        typical: rounds of a typical session, the median.
        n_sessions: held-out sessions; several sessions of one user count once.
        ess: the least effective sample size within the horizon, of both policies.
        sessions_needed: held-out sessions after which a difference as large as the measured one
            would be decided; None where it is decided, or the estimate is zero.
        number: the number of this candidate against the current model, from 1.
        level: level of the interval, 1 - alpha / (number (number + 1)).
        tightest_at: sessions near which the confidence sequence is tightest.
        identical: whether the difference is nothing but rounding.
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
    seed: int = 0,
) -> Verdict:
    """Compare two policies on logged sessions, paired by session, and say whether to activate.

    The estimate is SNDR. The interval is a confidence sequence, so that looking again after more
    sessions keeps its level for this candidate. It is about the rounds 1..h in which a gain would
    be seen best (`Comparison.clearest`), at least the share `compared` of a typical session. Where
    weights through whole sessions vary too much, rounds are compared by the weights of their last
    rounds (see `WeightedLog`), and the interval is wider. Over a whole session the candidate's
    estimate must be above the margin too.

    Args:
        current: the model and policy in use.
        candidate: their possible successor. Neither may have been fitted on the logged sessions.
        margin: the gain that a candidate must show.
        compared: the share of a typical session's rounds (the median) without which there is no
            decision.
        level: confidence level for all candidates against the current model together.
        number: number of this candidate, counted from 1; the k-th has alpha / (k (k + 1)).
        tightest_at: sessions n* near which the confidence sequence is tightest. It must be the same
            at every look.
        unrewarded: the reward of decisions without one; None: rewards that came are weighted up.
        users: the user of each session: sessions of one user are not independent.
        seed: random seed of the draws.
    """
    comparison = compare(current, candidate, unrewarded=unrewarded, users=users, seed=seed)
    typical = int(np.ceil(np.median(current.log.lengths)))
    least = max(1, math.ceil(compared * typical))
    gain = _measure(comparison, typical, least)
    level = level_of_candidate(level, number)
    interval = sequence_interval(gain.difference, gain.influence, level, tightest_at)
    interval = interval._replace(low=interval.low - gain.doubt, high=interval.high + gain.doubt)
    observed = current.log.reward[current.log.observed]
    scale = max(float(np.abs(observed).max()), abs(unrewarded or 0.0))
    identical = is_rounding(interval, scale)
    sizes = comparison.sizes(gain.window)
    longest = comparison.longest
    activate = False
    if identical:
        reason = "the candidate is identical to the current model: no difference but rounding"
    elif longest < least and gain.window is None:
        reason = (
            f"no decision: only {longest} of {typical} rounds of a session could be compared, and "
            f"{least} are needed: {len(gain.influence)} held-out sessions carry an effective "
            f"sample size of {sizes[longest]:.0f} in round {longest + 1}, below {MIN_ESS:.0f}: too "
            "few, or too little exploration"
        )
    elif interval.low > margin and gain.whole <= margin:
        reason = (
            f"the candidate is better in rounds 1-{gain.horizon}, but in a whole session of "
            f"{max(typical, longest)} rounds the difference is {gain.whole:.4g}, which is not "
            f"above the margin {margin:g}"
        )
    else:
        activate = interval.low > margin
        reason = _reason(interval, margin, gain, typical)
    base = ESTIMATORS[ESTIMATOR](comparison.weights[0]).up_to(gain.horizon)[0]
    needed = None
    if not identical:
        needed = _needed(interval, gain.influence, margin, level, tightest_at)
    return Verdict(
        activate=bool(activate),
        reason=reason,
        difference=gain.difference,
        stderr=interval.stderr,
        low=interval.low,
        high=interval.high,
        current=base,
        candidate=base + gain.difference,
        horizon=gain.horizon,
        typical=typical,
        n_sessions=len(gain.influence),
        ess=float(sizes[: gain.horizon].min()),
        sessions_needed=needed,
        number=number,
        level=level,
        tightest_at=tightest_at,
        identical=identical,
    )


class _Gain(NamedTuple):
    """Candidate minus current in rounds 1..horizon, before its interval.

    If weights through whole sessions vary too much, `window` is the number of last rounds whose
    weights were used, and `doubt` how much the difference depends on it. `whole` is the difference
    in a whole session.
    """

    horizon: int
    difference: float
    influence: FloatArray
    whole: float
    window: int | None = None
    doubt: float = 0.0


def _measure(comparison: Comparison, typical: int, least: int) -> _Gain:
    """Return the difference in the rounds, `least` or more, in which a gain would be seen best."""
    longest = comparison.longest
    session = max(typical, longest)
    window = comparison.widest(session)
    if longest < least and window > 1:
        difference, influence = comparison.difference(typical, window)
        whole = comparison.difference(session, window)[0]
        # How much one more round of weights matters says how much all of them might.
        doubt = abs(difference - comparison.difference(typical, window - 1)[0])
        return _Gain(typical, difference, influence, whole, window, doubt)
    horizon = comparison.clearest(least) if longest >= least else max(longest, 1)
    difference, influence = comparison.difference(horizon)
    whole = difference if window == 0 else comparison.difference(session, window)[0]
    return _Gain(horizon, difference, influence, whole)


def _reason(interval: Interval, margin: float, gain: _Gain, typical: int) -> str:
    rounds = f"rounds 1-{gain.horizon} (a typical session has {typical})"
    if gain.window is not None:
        last = f"those after {gain.window} by the weights of their last {gain.window}"
        rounds = f"rounds 1-{gain.horizon}, {last},"
    lies = (
        f"the difference per session in {rounds} lies in [{interval.low:.4g}, {interval.high:.4g}]"
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
    if deviation * sequence_width(_MOST_SESSIONS, level, tightest_at) > gap:
        return None

    def excludes(n_sessions: int) -> bool:
        return deviation * sequence_width(n_sessions, level, tightest_at) < gap

    sizes = range(len(influence), _MOST_SESSIONS)
    return len(influence) + bisect_left(sizes, True, key=excludes)
