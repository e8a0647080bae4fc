"""Two policies on the same logged sessions: their difference in the first rounds, and its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.evaluation import DecisionLog, evaluate
from latentbandits.evaluation.estimators import ByRound
from latentbandits.evaluation.evaluate import MIN_ESS
from latentbandits.models.checks import FloatArray
from latentbandits.policies.protocol import AnyPolicy

ESTIMATOR = "SNDR"


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
    """The estimates of two policies for every round.

    Attributes:
        current, candidate: values `(T,)` and influence values `(n_sessions, T)`.
        sizes: the effective sample size of every round, the smaller of both policies', `(T,)`.
    """

    current: ByRound
    candidate: ByRound
    sizes: FloatArray

    @property
    def longest(self) -> int:
        """The number of first rounds whose effective sample sizes are all large enough, or 1."""
        small = np.flatnonzero(self.sizes < MIN_ESS)
        return max(1, int(small[0])) if len(small) else len(self.sizes)

    def difference(self, horizon: int) -> tuple[float, FloatArray]:
        """Return candidate minus current in rounds 1..horizon, and its influence values `(n,)`."""
        value, influence = self.candidate.up_to(horizon)
        base, base_influence = self.current.up_to(horizon)
        return value - base, influence - base_influence

    def clearest(self) -> int:
        """Return the horizon, up to `longest`, at which a typical gain would be seen best.

        The gain of a better model of states grows as sessions go on. If it grows in proportion to
        the round, its sum over h rounds is in proportion to h (h + 1) / 2; this is divided by the
        standard error of the difference, which grows faster because weights multiply. Only errors
        are looked at: a choice by the differences themselves would favour rounds in which the
        candidate was lucky.
        """
        horizons = np.arange(1, self.longest + 1)
        errors = np.array([np.std(self.difference(int(h))[1]) for h in horizons])
        gains = horizons * (horizons + 1) / 2
        return int(horizons[np.argmax(gains / np.maximum(errors, np.finfo(float).tiny))])


def compare(
    current: Side,
    candidate: Side,
    *,
    unrewarded: float | None = None,
    draws: int = 100,
    seed: int = 0,
) -> Comparison:
    """Estimate both policies by SNDR on the same sessions (arguments as in `gate.judge`)."""
    n = current.log.n_sessions
    if candidate.log.n_sessions != n:
        raise ValueError(
            f"both sides must see the same sessions; got {n} and {candidate.log.n_sessions}"
        )

    def estimate(side: Side) -> tuple[ByRound, list[float]]:
        evaluation = evaluate(
            {"policy": side.policy},
            side.log,
            model=side.model,
            estimators=[ESTIMATOR],
            unrewarded=unrewarded,
            draws=draws,
            seed=seed,
        )
        sizes = [row["ess"] for row in evaluation.rounds if row["policy"] == "policy"]
        return evaluation.by_round["policy", ESTIMATOR], sizes

    (base, base_sizes), (other, other_sizes) = estimate(current), estimate(candidate)
    return Comparison(base, other, np.minimum(base_sizes, other_sizes))
