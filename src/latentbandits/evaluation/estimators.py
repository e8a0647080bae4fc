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

from latentbandits.evaluation.log import DecisionLog, EvaluationError
from latentbandits.models.checks import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class WeightedLog:
    """A candidate's weights on a log, arrays `(n_sessions, n_rounds)`.

    rho_t = product over k <= t of pi_k(a_k) / mu_k. A session that has ended keeps its last weight
    and has reward 0. A reward that arrived is divided by the probability of arriving, to make up
    for missing rewards (AIPW, with the model q). The ratio of a round without a reward stays in the
    later weights.

    With a `window` w the estimate of round t answers another question: what does the candidate earn
    in round t, if it takes over w - 1 rounds earlier in sessions that the log's policy began? The
    first w rounds have their full weights.

    A round may be a list of `length` positions, which are the columns. Estimates, effective sample
    sizes and windows are of lists. Position l has the weight of its prefix: the sum over positions
    is the reward-interaction estimate (McInerney et al. 2020), `dr` and `sndr` are Cascade-DR
    (Kiyohara et al. 2022). A list that ended above l is like a session that has ended.
    """

    ratio: FloatArray  # pi_t(a_t) / mu_t, 1 past the end
    reward: FloatArray  # NaN if there is none
    q: FloatArray  # q_t(a_t), 0 past the end
    direct: FloatArray  # sum_a pi_t(a) q_t(a), 0 past the end
    active: BoolArray
    arrival: FloatArray | None = None  # P(the reward comes | action, round); None: each came
    window: int | None = None  # weights are products of the last `window` rounds; None: of all
    length: int = 1  # positions of a round

    @classmethod
    def of_log(
        cls, log: DecisionLog, ratio: FloatArray, q: FloatArray, direct: FloatArray
    ) -> WeightedLog:
        arrival = arrival_chances(log)
        return cls(ratio, log.reward, q, direct, log.active, arrival, length=log.length)

    @property
    def n_sessions(self) -> int:
        return len(self.ratio)

    @cached_property
    def rho(self) -> FloatArray:
        rho: FloatArray = self.previous_rho * self.ratio
        return rho

    @cached_property
    def previous_rho(self) -> FloatArray:
        before = np.ones(self.ratio.shape)
        if self.window is None:
            before[:, 1:] = np.cumprod(self.ratio[:, :-1], axis=1)
            return before
        for t in range(self.ratio.shape[1]):
            first = max(t // self.length - self.window + 1, 0) * self.length
            before[:, t] = self.ratio[:, first:t].prod(axis=1)
        return before

    @cached_property
    def came(self) -> FloatArray:
        """1 / P(the reward comes) where it came, 0 where it did not; 1 past the session's end."""
        there = ~self.active | ~np.isnan(self.reward)
        return np.where(there, 1.0 if self.arrival is None else 1.0 / self.arrival, 0.0)

    @cached_property
    def rewards(self) -> FloatArray:
        """Rewards with 0 past the end and for missing rewards."""
        return np.where(self.active & ~np.isnan(self.reward), self.reward, 0.0)

    @cached_property
    def completed(self) -> FloatArray:
        """The reward of every round: q + (r - q) / P(it comes), which is r where all come."""
        return self.came * self.rewards + (1 - self.came) * self.q

    @property
    def effective_sample_size(self) -> FloatArray:
        """(sum rho_t)^2 / sum rho_t^2 of every round, `(T,)`; of a list, the least."""
        squares = (self.rho**2).sum(axis=0)
        total = self.rho.sum(axis=0) ** 2
        sizes: FloatArray = np.divide(total, squares, out=np.zeros_like(total), where=squares > 0)
        least: FloatArray = sizes.reshape(-1, self.length).min(axis=1)
        return least


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
    return _by_list(mean_by_round(log.rho * log.completed), log)


def snips(log: WeightedLog) -> ByRound:
    """Estimate by self-normalised importance sampling: sum rho_t r_t / sum rho_t."""
    return _by_list(_ratio(log.completed, log.rho), log)


def dr(log: WeightedLog) -> ByRound:
    """Return the doubly robust estimate.

    It is the mean of rho_t (r_t - q_t(a_t)) + rho_{t-1} sum_a pi_t(a) q_t(a).
    """
    residual = mean_by_round(log.rho * (log.completed - log.q))
    return _by_list(_add(residual, mean_by_round(log.previous_rho * log.direct)), log)


def sndr(log: WeightedLog) -> ByRound:
    """Return the self-normalised `dr`: both terms are divided by their sums of weights."""
    residual = _ratio(log.rewards - log.q, log.rho * log.came)
    return _by_list(_add(residual, _ratio(log.direct, log.previous_rho)), log)


def dm(log: WeightedLog) -> ByRound:
    """Return the direct method for one-round sessions: the mean of sum_a pi(a) q(a)."""
    return mean_by_round(log.direct)


def reached(log: WeightedLog) -> FloatArray:
    """Return the value of each round given that it is reached, self-normalised: `(T,)`."""
    weights = np.where(log.active, log.rho, 0.0)
    total = weights.sum(axis=0)[:: log.length]
    value = (weights * log.completed).sum(axis=0).reshape(-1, log.length).sum(axis=1)
    average: FloatArray = np.divide(value, total, out=np.full_like(total, np.nan), where=total > 0)
    return average


def arrival_chances(log: DecisionLog) -> FloatArray | None:
    """Return P(the reward comes | action, round) of every decision; None where all came.

    It is the share among decisions of the same action and round, shrunk towards the action's share
    (worth one decision), which is shrunk towards the log's share in the same way. So rare actions
    also have a chance above 0. Past a session's end it is 1.

    >>> rewards = np.array([[1.0], [np.nan], [0.5], [0.5]])
    >>> log = DecisionLog(np.array([[0], [0], [1], [1]]), rewards, np.ones(4, int), 2)
    >>> arrival_chances(log).ravel().round(2)
    array([0.53, 0.53, 0.97, 0.97])
    """
    active, observed = log.active, log.observed
    if observed.sum() == active.sum():
        return None
    session, round_ = np.nonzero(active)
    action = log.action[session, round_]
    if log.items is not None:  # a place among those offered: the action is what stood there
        action = log.items[session, round_, action]
    came = observed[session, round_].astype(np.float64)
    by_action = _share(action, came, np.full(len(came), came.mean()))
    cells = action * log.action.shape[1] + round_
    chances = np.ones(log.action.shape)
    chances[session, round_] = _share(cells, came, by_action)
    return chances


def _share(cell: IntArray, came: FloatArray, prior: FloatArray) -> FloatArray:
    """Return the share that came in each row's cell, with `prior` as one more row."""
    total, count = np.bincount(cell, came), np.bincount(cell)
    share: FloatArray = (total[cell] + prior) / (count[cell] + 1)
    return share


ESTIMATORS: Mapping[str, Estimator] = {"IPS": ips, "SNIPS": snips, "DR": dr, "SNDR": sndr}


def mean_by_round(values: FloatArray, counted: BoolArray | None = None) -> ByRound:
    """Average `values` over the sessions that are `counted` in each round; None counts all."""
    n = len(values)
    if counted is None:
        counted = np.ones(values.shape, np.bool_)
    count = np.maximum(counted.sum(axis=0), 1)
    value = np.where(counted, values, 0.0).sum(axis=0) / count
    return ByRound(value, np.where(counted, values - value, 0.0) * (n / count))


def _ratio(values: FloatArray, weights: FloatArray) -> ByRound:
    n = len(values)
    total = weights.sum(axis=0)
    safe = np.where(total > 0, total, 1.0)
    value = np.where(total > 0, (weights * values).sum(axis=0) / safe, np.nan)
    return ByRound(value, weights * (values - value) * (n / safe))


def _by_list(estimate: ByRound, log: WeightedLog) -> ByRound:
    """Return the sum over the positions of each list."""
    if log.length == 1:
        return estimate
    influence = estimate.influence.reshape(log.n_sessions, -1, log.length).sum(axis=2)
    return ByRound(estimate.value.reshape(-1, log.length).sum(axis=1), influence)


def _add(one: ByRound, other: ByRound) -> ByRound:
    return ByRound(one.value + other.value, one.influence + other.influence)


# Warn about decisions of propensity 1: the log has no data on other actions there.

_CERTAIN = 1 - 1e-9
_WORTH_A_WARNING = 0.01  # share of the candidate's decisions


def check_reach(weighted: Mapping[str, WeightedLog], log: DecisionLog) -> list[str]:
    """Return warnings about candidates that choose actions which the log could never have chosen.

    A decision with propensity 1 gave other actions no chance. EvaluationError if every decision
    with several eligible actions is such, and a candidate chooses another action.
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
