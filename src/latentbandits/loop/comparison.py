"""Two policies on the same logged sessions: their difference in the first rounds, and its error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latentbandits.evaluation import DecisionLog, evaluate
from latentbandits.evaluation.estimators import ESTIMATORS, ByRound, WeightedLog
from latentbandits.evaluation.evaluate import MIN_ESS
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.policies.protocol import AnyPolicy

ESTIMATOR = "SNDR"
_LEAST_ERROR = 0.01  # of a difference per session, in units of a reward's noise: below it, rounding


@dataclass(frozen=True, eq=False)
class Side:
    """A policy, the reward model that DR uses for it, and the sessions as its catalogue sees them.

    The logs of both sides hold the same sessions in the same order.
    """

    policy: AnyPolicy
    model: Any
    log: DecisionLog


@dataclass(frozen=True, eq=False)
class Comparison:
    """The estimates of two policies for every round, and their weights on the log.

    Attributes:
        current, candidate: values `(T,)` and influence values `(n_sessions, T)`.
        weights: of the current policy and of the candidate.
        users: the user of each session, `(n_sessions,)`; None: sessions are independent.
    """

    current: ByRound
    candidate: ByRound
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
        base, other = (ESTIMATORS[ESTIMATOR](replace(w, window=window)) for w in self.weights)
        value, influence = other.up_to(rounds)
        base_value, base_influence = base.up_to(rounds)
        influence = influence - base_influence
        if self.users is not None:
            by_user = np.bincount(self.users, influence)
            influence = np.asarray(by_user * (len(by_user) / len(influence)), np.float64)
        return value - base_value, influence

    def clearest(self, least: int) -> int:
        """Return the horizon from `least` to `longest` at which a typical gain would be seen best.

        Two policies earn the same where they choose the same. Where they do not, the gain of a
        better model of states grows as sessions go on. So the gain of round t is taken in
        proportion to t times the share of decisions on which they differ, and the error of a sum
        over rounds is what noise of the same size in every reward gives it through the weights.
        Both follow from the weights. No reward decides about the horizon: a choice by the
        differences themselves would favour rounds in which the candidate was lucky.
        """
        one, two = self.weights
        before = (one.previous_rho + two.previous_rho) / 2
        differing = (before * np.abs(one.ratio - two.ratio) / 2).mean(axis=0)
        gains = np.cumsum(np.arange(1, len(differing) + 1) * differing)
        apart = np.where(one.active, _relative(one.rho) - _relative(two.rho), 0.0)
        errors = np.sqrt(np.cumsum((apart**2).mean(axis=0)))
        power = gains / np.maximum(errors, _LEAST_ERROR)
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
    draws: int = 100,
    seed: int = 0,
) -> Comparison:
    """Estimate both policies by SNDR on the same sessions (arguments as in `gate.judge`)."""
    n = current.log.n_sessions
    if candidate.log.n_sessions != n:
        raise ValueError(
            f"both sides must see the same sessions; got {n} and {candidate.log.n_sessions}"
        )

    def estimate(side: Side) -> tuple[ByRound, WeightedLog]:
        evaluation = evaluate(
            {"policy": side.policy},
            side.log,
            model=side.model,
            estimators=[ESTIMATOR],
            unrewarded=unrewarded,
            draws=draws,
            seed=seed,
        )
        return evaluation.by_round["policy", ESTIMATOR], evaluation.weighted["policy"]

    (base, base_weights), (other, other_weights) = estimate(current), estimate(candidate)
    return Comparison(base, other, (base_weights, other_weights), users)
