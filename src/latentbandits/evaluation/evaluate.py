"""Estimate from logged decisions what other policies would have earned."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.evaluation import matching
from latentbandits.evaluation.estimators import (
    ESTIMATORS,
    ByRound,
    WeightedLog,
    check_reach,
    dm,
    mean_by_round,
    reached,
)
from latentbandits.evaluation.follow import follow, predict
from latentbandits.evaluation.intervals import (
    SAME,
    Interval,
    check_level,
    normal_interval,
    verdict,
)
from latentbandits.evaluation.log import DecisionLog, EvaluationError
from latentbandits.models.checks import FloatArray
from latentbandits.policies.protocol import AnyPolicy, adopt
from latentbandits.report.notebook import Shown, columns_of, plural
from latentbandits.report.report import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGED = "logged"
"""The name of the policy that produced the log."""

MIN_ESS = 100.0
"""The default horizon ends where a compared policy's effective sample size falls below this."""

NAMES = (*ESTIMATORS, "DM", "replay", "queue")
"""Every estimator, in the order of the tables."""

_WEIGHTED = tuple(ESTIMATORS)
_CHUNK = 2**20  # sessions x rounds x actions that are processed at a time


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Shown):
    """Estimates of several policies on one log.

    `to_polars` and `to_pandas` return the estimates.

    Attributes:
        estimates: rows of policy, estimator, horizon (sum over rounds 1..horizon), value, stderr,
            low, high, ess.
        rounds: rows of policy, estimator, round, value, stderr, low, high, ess, reached.
        differences: rows of policy, against, estimator, horizon, value, stderr, low, high, verdict.
            Both sides of a difference are estimated by the same formula.
        horizon: the rounds that the estimates sum over.
        horizon_reason: how the horizon was chosen.
        warnings: sentences about what may be wrong with the log or the estimates.
        by_round: per (policy, estimator), values and influence values of every logged round.
        weighted: each policy's weights on the log, where an estimator needed them.
    """

    estimates: list[dict[str, Any]]
    rounds: list[dict[str, Any]]
    differences: list[dict[str, Any]]
    horizon: int
    horizon_reason: str
    n_sessions: int
    n_decisions: int
    warnings: list[str] = field(default_factory=list)
    by_round: Mapping[tuple[str, str], ByRound] = field(default_factory=dict)
    weighted: Mapping[str, WeightedLog] = field(default_factory=dict)
    seconds: float = 0.0

    def estimate(self, policy: str, estimator: str = "SNDR") -> Interval:
        """Return the estimate of one policy at the horizon."""
        for row in self.estimates:
            if row["policy"] == policy and row["estimator"] == estimator:
                return Interval(row["value"], row["stderr"], row["low"], row["high"])
        known = sorted({(row["policy"], row["estimator"]) for row in self.estimates})
        raise KeyError(f"no estimate {estimator} of {policy!r}; there are {known}")

    def _headline(self) -> str:
        policies = dict.fromkeys(row["policy"] for row in self.estimates)
        sizes = (
            f"{plural(self.n_sessions, 'session')}, {plural(self.n_decisions, 'decision')}, "
            f"rounds 1-{self.horizon}"
        )
        return f"Evaluation({', '.join(policies)}; {sizes})"

    def _shown_tables(self) -> list[Table]:
        from latentbandits.evaluation.report_tables import tables

        warnings = Table("Warnings", ("",), [(warning,) for warning in self.warnings])
        return [*tables(self), *([warnings] if self.warnings else [])]

    def _columns(self) -> dict[str, list[Any]]:
        return columns_of(self.estimates)

    def _draw(self) -> Figure:
        from latentbandits.evaluation.report_tables import figure

        return figure(self)


def evaluate(
    policies: AnyPolicy | Mapping[str, AnyPolicy],
    log: DecisionLog,
    *,
    model: Any = None,
    against: str | None = None,
    estimators: Sequence[str] | None = None,
    horizon: int | None = None,
    unrewarded: float | None = None,
    draws: int | None = 100,
    level: float = 0.95,
    seed: int = 0,
    simulated: Callable[[AnyPolicy, int, int], FloatArray] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Estimate what `policies` would have earned per session in the logged rounds.

    rho_t = product over k <= t of pi_k(a_k) / mu_k weights session histories; every standard error
    is over sessions. Rewards that came are divided by the share that came for the same action and
    round. See `estimators` for the formulas. DM has no interval, because its error is the model's
    error.

    Args:
        policies: one policy, or several by name.
        log: logged decisions (`read_decisions` makes it from any table).
        model: the reward model of DR, SNDR and DM; by default the first policy's own.
        against: a policy's name or "logged": adds paired differences from it.
        estimators: some of `NAMES`; by default all that the log allows.
        horizon: sums are over rounds 1..horizon; by default the largest with an effective sample
            size of at least 100 in every round, for every policy.
        unrewarded: the reward of decisions without one; None: rewards that came are weighted up.
        draws: posterior draws that Thompson sampling counts for pi_t(a); None asks the policy for
            its own probabilities, by quadrature where it has them (slower).
        level: level of the intervals.
        seed: random seed of the draws.
        simulated: `(policy, n, horizon)` to rewards of simulated sessions, for DM of sessions
            with several rounds; None leaves DM to one-round sessions.
        progress: called with the number of sessions done.

    >>> from latentbandits import GaussianArms, mTS
    >>> rng = np.random.default_rng(0)
    >>> action = rng.integers(2, size=(200, 1))
    >>> reward = np.where(action == 0, 0.9, 0.1) + 0.1 * rng.standard_normal((200, 1))
    >>> log = DecisionLog(action, reward, np.ones(200, np.int64), 2, np.full((200, 1), 0.5))
    >>> model = GaussianArms([[0.9, 0.1]], noise=0.1)
    >>> round(evaluate(mTS(model), log).estimate("mTS", "SNIPS").value, 1)
    0.9
    """
    started = time.perf_counter()
    check_level(level)
    named = _named(policies)
    log = log if unrewarded is None else log.filled(unrewarded)
    if horizon is not None and not 1 <= horizon <= log.n_rounds:
        raise EvaluationError(
            f"horizon must be from 1 to {log.n_rounds}, the longest session; got {horizon}"
        )
    if horizon is not None:
        log = log.up_to(horizon)
    if np.isnan(log.reward[log.active]).all():
        raise EvaluationError(
            f"none of the {int(log.active.sum())} decisions has a reward, so there is nothing to "
            "estimate. If a missing reward means a value (clicks: 0), give it: --unrewarded 0, "
            "evaluate(..., unrewarded=0)"
        )
    warnings: list[str] = []
    model = _reward_model(named, model)
    chosen = _choose(estimators, log, model, simulated is not None, warnings)
    if against not in (None, LOGGED, *named):
        raise EvaluationError(
            f"against must be {LOGGED!r} or one of {', '.join(named)}; got {against!r}"
        )
    weighted = {}
    if any(name in _WEIGHTED for name in chosen) or ("DM" in chosen and log.n_rounds == 1):
        weighted = _weigh(named, log, model, seed, draws, progress)
        warnings += check_reach(weighted, log)
    limit, reason = _horizon(horizon, weighted, log)
    results = _estimate(named, log, chosen, weighted, seed, simulated)
    if LOGGED not in named:
        first = next(iter(weighted.values()), None)
        results[LOGGED, "mean"] = ESTIMATORS["IPS"](as_logged(log, first))
    warnings += _weight_warnings(weighted, limit)
    rows = [_rows(key, by_round, limit, weighted, level) for key, by_round in results.items()]
    return Evaluation(
        estimates=[whole for whole, _ in rows],
        rounds=[row for _, rounds in rows for row in rounds],
        differences=_differences(results, against, log, weighted, limit, level),
        horizon=limit,
        horizon_reason=reason,
        n_sessions=log.n_sessions,
        n_decisions=int(log.active.sum()),
        warnings=warnings,
        by_round=results,
        weighted=weighted,
        seconds=time.perf_counter() - started,
    )


def _named(policies: AnyPolicy | Mapping[str, AnyPolicy]) -> Mapping[str, AnyPolicy]:
    if isinstance(policies, Mapping):
        if not policies:
            raise EvaluationError("there is no policy to evaluate")
        return {name: adopt(policy, "evaluate") for name, policy in policies.items()}
    policy = adopt(policies, "evaluate")
    return {policy.name: policy}


def _reward_model(policies: Mapping[str, AnyPolicy], model: Any) -> Any:
    if model is not None:
        return model
    models = (policy.model_or_none for policy in policies.values())
    return next((one for one in models if one is not None), None)


def _choose(
    names: Sequence[str] | None,
    log: DecisionLog,
    model: Any,
    can_simulate: bool,
    warnings: list[str],
) -> list[str]:
    """Return the estimators to compute: the requested ones, or all that this log allows."""
    lacking: dict[str, str] = {}
    if log.propensity is None:
        reason = "the log has no propensities, which importance weights need"
        lacking |= dict.fromkeys(_WEIGHTED, reason)
    if model is None:
        lacking |= dict.fromkeys(("DR", "SNDR", "DM"), "there is no reward model: pass model=")
    if log.n_rounds > 1 and not can_simulate:
        lacking["DM"] = "sessions have several rounds, and there is nothing to simulate them with"
    if log.length > 1:
        lacking["DM"] = "rounds are lists of actions"
    lacking |= matching.lacking(log)
    if names is None:
        chosen = [name for name in NAMES if name not in lacking]
        if not chosen:
            raise EvaluationError("no estimator fits this log: " + "; ".join(lacking.values()))
        if log.propensity is None:
            warnings.append(
                "The log has no propensities, so only "
                f"{', '.join(chosen)} can be computed; IPS, SNIPS, DR and SNDR need them."
            )
        return chosen
    by_lower = {name.lower(): name for name in NAMES}
    chosen = []
    for name in names:
        if name.lower() not in by_lower:
            raise EvaluationError(f"there is no estimator {name!r}; there are {', '.join(NAMES)}")
        actual = by_lower[name.lower()]
        if actual in lacking:
            fit = ", ".join(n for n in NAMES if n not in lacking) or "none"
            raise EvaluationError(
                f"{actual} cannot be computed: {lacking[actual]}. "
                f"Estimators that fit this log: {fit}"
            )
        chosen.append(actual)
    return chosen


def _weigh(
    policies: Mapping[str, AnyPolicy],
    log: DecisionLog,
    model: Any,
    seed: int,
    draws: int | None,
    progress: Callable[[int], None] | None,
) -> dict[str, WeightedLog]:
    """Follow every policy along the log, some sessions at a time."""
    n, n_rounds = log.action.shape
    chance = {name: np.ones((n, n_rounds)) for name in policies}
    direct = {name: np.zeros((n, n_rounds)) for name in policies}
    q_chosen = np.zeros((n, n_rounds))
    streams = {name: np.random.default_rng([seed, i]) for i, name in enumerate(policies)}
    n_features = 1 if log.item_features is None else log.item_features.shape[1]
    if log.features is not None:
        n_features = log.features.shape[3]
    size = max(1, _CHUNK // (n_rounds * log.n_actions * n_features))
    for start in range(0, n, size):
        rows = np.arange(start, min(start + size, n))
        part = log if len(rows) == n else log.take(rows)
        q = None if model is None else predict(model, part)
        if q is not None:
            places = np.maximum(part.action, 0)[:, :, None]
            taken = np.take_along_axis(q, places, axis=2)[:, :, 0]
            q_chosen[rows] = np.where(part.active, taken, 0.0)
        for name, policy in policies.items():
            followed = follow(policy, part, q, streams[name], draws)
            chance[name][rows], direct[name][rows] = followed
        if progress is not None:
            progress(len(rows))
    mu = np.ones((n, n_rounds))
    if log.propensity is not None:
        mu = np.where(log.active, log.propensity, 1.0)
    return {
        name: WeightedLog.of_log(log, chance[name] / mu, q_chosen, direct[name])
        for name in policies
    }


def _horizon(
    horizon: int | None, weighted: Mapping[str, WeightedLog], log: DecisionLog
) -> tuple[int, str]:
    if horizon is not None:
        return horizon, "as asked for"
    if not weighted or log.propensity is None:
        return log.n_rounds, "the longest session"
    limit, who = log.n_rounds, ""
    for name, part in weighted.items():
        low = np.flatnonzero(part.effective_sample_size < MIN_ESS)
        if len(low) and low[0] < limit:
            limit, who = int(low[0]), name
    if not who:
        return limit, f"the longest session; the effective sample size stays above {MIN_ESS:.0f}"
    reason = f"the effective sample size of {who} falls below {MIN_ESS:.0f} in round {limit + 1}"
    return max(limit, 1), reason


def _estimate(
    policies: Mapping[str, AnyPolicy],
    log: DecisionLog,
    chosen: Sequence[str],
    weighted: Mapping[str, WeightedLog],
    seed: int,
    simulated: Callable[[AnyPolicy, int, int], FloatArray] | None,
) -> dict[tuple[str, str], ByRound]:
    results: dict[tuple[str, str], ByRound] = {}
    for i, (name, policy) in enumerate(policies.items()):
        for estimator in chosen:
            rng = np.random.default_rng([seed, i, 1 + NAMES.index(estimator)])
            if estimator in ESTIMATORS:
                by_round = ESTIMATORS[estimator](weighted[name])
            elif estimator == "DM" and log.n_rounds == 1:
                by_round = dm(weighted[name])
            elif estimator == "DM":
                assert simulated is not None
                by_round = mean_by_round(simulated(policy, log.n_sessions, log.n_rounds))
            elif estimator == "replay":
                by_round = matching.rejection_replay(policy, log, rng)
            else:
                by_round = matching.queue(policy, log, rng)
            results[name, estimator] = by_round
    return results


def as_logged(log: DecisionLog, part: WeightedLog | None = None) -> WeightedLog:
    """Return the log weighted for the policy that made it: every ratio is 1.

    The log has that policy's probability of the chosen action only, so that q of this action
    stands for sum_a mu(a) q(a). If the candidate with the weights `part` has the log's
    probabilities, they give the rest.
    """
    ones = np.ones(log.action.shape)
    if part is None:
        zeros = np.zeros(log.action.shape)
        return WeightedLog.of_log(log, ones, zeros, zeros)
    same = bool(np.all(np.abs(part.ratio - 1) <= SAME))
    return replace(part, ratio=ones, direct=part.direct if same else part.q)


def _rows(
    key: tuple[str, str],
    by_round: ByRound,
    horizon: int,
    weighted: Mapping[str, WeightedLog],
    level: float,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the row of the whole horizon, and a row for each round."""
    policy, estimator = key
    n_rounds = len(by_round.value)
    sizes = reach = np.full(n_rounds, math.nan)
    if estimator in ESTIMATORS and policy in weighted:
        sizes, reach = weighted[policy].effective_sample_size, reached(weighted[policy])
    last = min(horizon, n_rounds)
    whole = Interval(*[math.nan] * 4)  # queue: too few sessions have even a first round
    if last:
        whole = _interval(estimator, *by_round.up_to(last), level)
    names = {"policy": policy, "estimator": estimator}
    row = {
        **names,
        "horizon": last,
        **whole._asdict(),
        "per_round": whole.value / last if last else math.nan,
        "ess": float(sizes[:last].min()) if last else math.nan,
    }
    rounds = []
    for t, value in enumerate(by_round.value):
        interval = _interval(estimator, float(value), by_round.influence[:, t], level)
        sized = {"ess": float(sizes[t]), "value_if_reached": float(reach[t])}
        rounds.append({**names, "round": t + 1, **interval._asdict(), **sized})
    return row, rounds


def _interval(estimator: str, value: float, influence: FloatArray, level: float) -> Interval:
    """Return the interval over sessions; none for DM, whose error is its model's."""
    if estimator == "DM":
        return Interval(value, math.nan, math.nan, math.nan)
    return normal_interval(value, influence, level)


def _differences(
    results: Mapping[tuple[str, str], ByRound],
    against: str | None,
    log: DecisionLog,
    weighted: Mapping[str, WeightedLog],
    horizon: int,
    level: float,
) -> list[dict[str, Any]]:
    """Return paired differences: influence values are subtracted session by session."""
    if against is None:
        return []
    scale = float(np.abs(log.reward[log.observed]).max())
    rows = []
    for (policy, estimator), by_round in results.items():
        if policy in (against, LOGGED) or estimator not in ESTIMATORS:
            continue
        if against == LOGGED:
            base = ESTIMATORS[estimator](as_logged(log, weighted[policy]))
        else:
            base = results[against, estimator]
        value, influence = by_round.up_to(horizon)
        base_value, base_influence = base.up_to(horizon)
        interval = normal_interval(value - base_value, influence - base_influence, level)
        rows.append(
            {
                "policy": policy,
                "against": against,
                "estimator": estimator,
                "horizon": horizon,
                **interval._asdict(),
                "verdict": verdict(interval, scale),
            }
        )
    return rows


def _weight_warnings(weighted: Mapping[str, WeightedLog], horizon: int) -> list[str]:
    warnings = []
    for name, part in weighted.items():
        size = part.effective_sample_size[:horizon].min()
        if size < MIN_ESS:
            warnings.append(
                f"The effective sample size of {name} falls to {size:.0f} within {horizon} rounds: "
                "the log says little about it, and intervals are too narrow. Shorten the horizon, "
                "or log more sessions with more exploration."
            )
    return warnings
