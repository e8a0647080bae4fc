"""The importance-weighted estimators, each a few lines on the same weighted log.

Each estimator returns the value of every round and one influence value per session and round, so
that sums over rounds and differences between policies have standard errors over sessions.
Sources: Precup, Sutton & Singh 2000 (per-decision importance sampling), Swaminathan & Joachims
2015 (self-normalised), Jiang & Li 2016 (doubly robust).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class WeightedLog:
    """A candidate's weights on a log, arrays `(n_sessions, n_rounds)`.

    rho_t = product over k <= t of pi_k(a_k) / mu_k. A session that has ended keeps its last weight
    and has reward 0. A round whose reward never came is dropped from the averages of rewards, and
    its ratio stays in the later weights.
    """

    ratio: FloatArray  # pi_t(a_t) / mu_t, 1 past the end
    reward: FloatArray  # NaN if there is none
    q: FloatArray  # q_t(a_t), 0 past the end
    direct: FloatArray  # sum_a pi_t(a) q_t(a), 0 past the end
    active: BoolArray

    @property
    def n_sessions(self) -> int:
        return len(self.ratio)

    @cached_property
    def rho(self) -> FloatArray:
        rho: FloatArray = np.cumprod(self.ratio, axis=1, dtype=np.float64)
        return rho

    @cached_property
    def previous_rho(self) -> FloatArray:
        return np.concatenate([np.ones((self.n_sessions, 1)), self.rho[:, :-1]], axis=1)

    @cached_property
    def counted(self) -> BoolArray:
        """Rounds that enter averages of rewards: rewarded, or past the session's end."""
        return ~self.active | ~np.isnan(self.reward)

    @cached_property
    def rewards(self) -> FloatArray:
        """Rewards with 0 past the end and for missing rewards."""
        return np.where(self.active & ~np.isnan(self.reward), self.reward, 0.0)

    @property
    def effective_sample_size(self) -> FloatArray:
        """(sum rho_t)^2 / sum rho_t^2 of every round, `(T,)`."""
        squares = (self.rho**2).sum(axis=0)
        total = self.rho.sum(axis=0) ** 2
        sizes: FloatArray = np.divide(total, squares, out=np.zeros_like(total), where=squares > 0)
        return sizes


class ByRound(NamedTuple):
    """An estimate of every round's reward per session."""

    value: FloatArray  # (T,)
    influence: FloatArray  # (n_sessions, T): mean 0; Var(value) = mean(influence^2) / n

    def up_to(self, horizon: int) -> tuple[float, FloatArray]:
        """Return the sum over the first `horizon` rounds and its influence values `(n,)`."""
        return float(self.value[:horizon].sum()), self.influence[:, :horizon].sum(axis=1)


Estimator = Callable[[WeightedLog], ByRound]


def ips(log: WeightedLog) -> ByRound:
    """Estimate by per-decision importance sampling: the mean of rho_t r_t."""
    return mean_by_round(log.rho * log.rewards, log.counted)


def snips(log: WeightedLog) -> ByRound:
    """Estimate by self-normalised importance sampling: sum rho_t r_t / sum rho_t."""
    return _ratio(log.rewards, log.rho, log.counted)


def dr(log: WeightedLog) -> ByRound:
    """Return the doubly robust estimate.

    It is the mean of rho_t (r_t - q_t(a_t)) + rho_{t-1} sum_a pi_t(a) q_t(a).
    """
    everyone = np.ones_like(log.counted)
    residual = mean_by_round(log.rho * _residuals(log), log.counted)
    return _add(residual, mean_by_round(log.previous_rho * log.direct, everyone))


def sndr(log: WeightedLog) -> ByRound:
    """Return the self-normalised `dr`: both terms are divided by their sums of weights."""
    everyone = np.ones_like(log.counted)
    residual = _ratio(_residuals(log), log.rho, log.counted)
    return _add(residual, _ratio(log.direct, log.previous_rho, everyone))


def dm(log: WeightedLog) -> ByRound:
    """Return the direct method for one-round sessions: the mean of sum_a pi(a) q(a)."""
    return mean_by_round(log.direct, np.ones_like(log.counted))


def reached(log: WeightedLog) -> FloatArray:
    """Return the value of each round given that it is reached, self-normalised: `(T,)`."""
    weights = np.where(log.active & log.counted, log.rho, 0.0)
    total = weights.sum(axis=0)
    value = (weights * log.rewards).sum(axis=0)
    average: FloatArray = np.divide(value, total, out=np.full_like(total, np.nan), where=total > 0)
    return average


ESTIMATORS: Mapping[str, Estimator] = {"IPS": ips, "SNIPS": snips, "DR": dr, "SNDR": sndr}


def _residuals(log: WeightedLog) -> FloatArray:
    return np.where(log.active & log.counted, log.rewards - log.q, 0.0)


def mean_by_round(values: FloatArray, counted: BoolArray) -> ByRound:
    """Average `values` over the sessions that are `counted` in each round."""
    n = len(values)
    count = np.maximum(counted.sum(axis=0), 1)
    value = np.where(counted, values, 0.0).sum(axis=0) / count
    return ByRound(value, np.where(counted, values - value, 0.0) * (n / count))


def _ratio(values: FloatArray, weights: FloatArray, counted: BoolArray) -> ByRound:
    n = len(values)
    kept = np.where(counted, weights, 0.0)
    total = kept.sum(axis=0)
    safe = np.where(total > 0, total, 1.0)
    value = np.where(total > 0, (kept * values).sum(axis=0) / safe, np.nan)
    return ByRound(value, kept * (values - value) * (n / safe))


def _add(one: ByRound, other: ByRound) -> ByRound:
    return ByRound(one.value + other.value, one.influence + other.influence)
