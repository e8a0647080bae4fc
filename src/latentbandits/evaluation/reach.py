"""Warn about decisions of propensity 1: the log has no data on other actions there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from latentbandits.evaluation.estimators import WeightedLog
from latentbandits.evaluation.log import DecisionLog, EvaluationError

_CERTAIN = 1 - 1e-9
_WORTH_A_WARNING = 0.01  # share of the candidate's decisions


def check_reach(weighted: Mapping[str, WeightedLog], log: DecisionLog) -> list[str]:
    """Return warnings about candidates that choose actions which the log never could have.

    A decision whose propensity is 1 had no chance of any other action. EvaluationError where that
    holds for every decision with several eligible actions, and a candidate chooses others.
    """
    if log.propensity is None:
        return []
    open_ = log.active & (log.n_eligible > 1)
    certain = open_ & (np.where(log.active, log.propensity, 0.0) >= _CERTAIN)
    warnings = []
    for name, part in weighted.items():
        elsewhere = np.where(certain, 1.0 - np.minimum(part.ratio, 1.0), 0.0)
        if elsewhere.max(initial=0.0) < 1e-6:
            continue
        if certain.sum() == open_.sum():
            i, j = np.unravel_index(elsewhere.argmax(), elsewhere.shape)
            raise EvaluationError(
                f"every decision of the log was made with probability 1; {name} would choose other "
                f"actions, which the log never could have (in {log.where(int(i), int(j))} with "
                f"probability {elsewhere[i, j]:.3g}). What they earn cannot be told: log with "
                "serve --explore, or wrap the policy in Exploring"
            )
        share = float(elsewhere.sum() / open_.sum())
        if share > _WORTH_A_WARNING:
            warnings.append(
                f"{100 * share:.1f}% of the decisions of {name} would be actions that the log "
                f"never could have: {int(certain.sum())} of {int(open_.sum())} decisions with "
                "several eligible actions have propensity 1. Weighted estimates are biased by them"
            )
    return warnings
