"""A policy given as a fixed distribution over actions, or by a log of its decisions.

The policy chooses with fixed probabilities, whatever has happened before. Where actions have
positions, such as the places of a page, the probabilities are conditional on the position:
"action @ position" is then one action, and a decision chooses among the actions at its position.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from latentbandits.evaluation.estimators import ESTIMATORS
from latentbandits.evaluation.evaluate import Evaluation, as_logged
from latentbandits.evaluation.intervals import normal, normal_interval
from latentbandits.evaluation.log import Columns, DecisionLog, EvaluationError
from latentbandits.evaluation.reading import load_decisions
from latentbandits.learning.logs.tables import TableSource, column_names, read_table
from latentbandits.models.checks import FloatArray
from latentbandits.policies import decision
from latentbandits.policies.checked import Asked, CheckedPolicy, Choice, Outcome
from latentbandits.policies.classic import Rounds
from latentbandits.policies.decision import ActionProbabilities

TARGET = "target log"
"""The name of the policy that made the target log."""

Shares = Mapping[str, float]
"""The chance of every action; of "action @ position", given the position."""


@dataclass(frozen=True, eq=False)
class FixedDistribution(CheckedPolicy[Rounds]):
    """Choose among the eligible actions by fixed chances; nothing is learned.

    Args:
        chances: chance of every action, `(n_actions,)`; scaled to sum to 1 over the eligible ones.
        label: the name that its decisions carry.

    >>> policy = FixedDistribution(np.array([0.2, 0.3, 0.5]))
    >>> some = np.array([[True, True, False]])
    >>> policy.action_probabilities(policy.init(), None, None, eligible=some).values
    array([[0.4, 0.6, 0. ]])
    """

    chances: FloatArray
    label: str = "distribution"

    @property
    def name(self) -> str:
        return self.label

    def init(self, n_sessions: int = 1) -> Rounds:
        return Rounds(np.zeros(n_sessions))

    def checked_context(self, context: Any, n_sessions: int) -> tuple[None, int]:
        return None, len(self.chances)

    def _probabilities(self, belief: Rounds, asked: Asked) -> ActionProbabilities:
        chances = np.tile(self.chances, (len(belief.counts), 1))
        if asked.eligible is not None:
            chances = np.where(asked.eligible, chances, 0.0)
        total = chances.sum(axis=1, keepdims=True)
        if (total <= 0).any():
            raise EvaluationError(
                "the distribution gives every eligible action of some decision the chance 0: what "
                "its policy would do there is not known"
            )
        return ActionProbabilities(chances / total, "exact")

    def _choose(self, belief: Rounds, asked: Asked, propensity: bool) -> Choice:
        chances = self._probabilities(belief, asked).values
        action = decision.draw(chances, asked.rng)
        state = np.zeros(len(action), np.int64)
        return Choice(action, state, decision.at(chances, action), "exact")

    def _learn(self, belief: Rounds, outcome: Outcome) -> Rounds:
        return belief


def read_distribution(source: TableSource) -> Shares:
    """Read chances from a table with the columns action and probability, perhaps position.

    >>> read_distribution({"action": ["a", "b"], "probability": [0.25, 0.75]})
    {'a': 0.25, 'b': 0.75}
    """
    names = ["action", "probability"]
    if "position" in column_names(source):
        names.append("position")
    frame = read_table(source, names, text=["action", "position"]).frame
    frame = _named(frame, "action", "position" if "position" in names else None)
    try:
        chances = frame["probability"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    except pl.exceptions.PolarsError:
        raise EvaluationError("the distribution's column 'probability' must hold numbers") from None
    actions: list[str] = frame["action"].to_list()
    if len(set(actions)) < len(actions):
        twice = next(name for name in actions if actions.count(name) > 1)
        raise EvaluationError(f"the distribution names {twice!r} more than once")
    if not (chances >= 0).all():
        wrong = int(np.argmin(chances >= 0))
        raise EvaluationError(
            f"the distribution gives {actions[wrong]!r} the probability {chances[wrong]}"
        )
    shares = dict(zip(actions, chances.tolist(), strict=True))
    for where, total in _totals(shares).items():
        if abs(total - 1) > 1e-4:
            raise EvaluationError(
                f"the distribution's probabilities{where} sum to {total:.6g}: they must sum to 1"
            )
    return shares


def shares_of(decisions: pl.DataFrame, columns: Columns | None = None) -> Shares:
    """Return the share of every action among a log's decisions (of its position, where it has one).

    It is the distribution of the policy that made the log, averaged over the log's time.
    """
    counts = decisions[(columns or Columns()).action].value_counts().rows()
    counted = {str(action): float(count) for action, count in counts}
    totals = _totals(counted)
    return {action: count / totals[_where(action)] for action, count in counted.items()}


@dataclass(frozen=True, eq=False)
class FixedCandidates:
    """Distributions and the log that they are judged on.

    Attributes:
        decisions: the log; if it has positions, every decision lists its eligible actions.
        shares: the chances of each candidate, by its name.
        target: the log of the candidate "target log".
        warnings: about actions that the log never has.
    """

    decisions: pl.DataFrame
    shares: Mapping[str, Shares]
    target: pl.DataFrame | None
    warnings: list[str]
    action: str

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions, of the log and of the candidates."""
        named = (name for one in self.shares.values() for name in one)
        return tuple(sorted({*self.decisions[self.action].to_list(), *named}))

    def policies(self, ids: Sequence[str], log: DecisionLog) -> dict[str, FixedDistribution]:
        """Return the candidates as policies; `ids` are the names of the log's actions."""
        if log.items is not None or log.features is not None:
            raise EvaluationError(
                "a fixed distribution needs a log in which every decision has the same actions: "
                "leave out --model, whose actions are chosen by their features"
            )
        for name, one in self.shares.items():
            unknown = [action for action in one if action not in ids]
            if unknown:
                raise EvaluationError(f"{name}: the model has no action {unknown[0]!r}")
        return {
            name: FixedDistribution(np.array([one.get(action, 0.0) for action in ids]), name)
            for name, one in self.shares.items()
        }


def read_fixed(
    source: TableSource,
    columns: Columns,
    position: str | None = None,
    distribution: TableSource | None = None,
    target_log: TableSource | None = None,
) -> FixedCandidates:
    """Read a log, and the distributions that are to be judged on it."""
    also = [] if position is None else [position]
    decisions = _named(load_decisions(source, columns, also), columns.action, position)
    shares: dict[str, Shares] = {}
    target = None
    if distribution is not None:
        shares["distribution"] = read_distribution(distribution)
    if target_log is not None:
        target = _named(load_decisions(target_log, columns, also), columns.action, position)
        shares[TARGET] = shares_of(target, columns)
    seen = decisions[columns.action].to_list()
    for name, one in shares.items():
        placed = {bool(_where(action)) for action in one}
        if placed != {position is not None}:
            raise EvaluationError(
                f"{name}: name the log's column of positions with --position if its chances depend "
                "on them, and only then"
            )
    if position is not None:
        lists: dict[str, list[str]] = {}
        for name in sorted({*seen, *(action for one in shares.values() for action in one)}):
            lists.setdefault(_where(name), []).append(name)
        eligible = pl.Series(columns.eligible, [lists[_where(name)] for name in seen])
        decisions = decisions.with_columns(eligible)
    warnings = [w for name, one in shares.items() for w in _out_of_reach(name, one, set(seen))]
    return FixedCandidates(decisions, shares, target, warnings, columns.action)


def _out_of_reach(name: str, shares: Shares, seen: set[str]) -> list[str]:
    never = {action: one for action, one in shares.items() if action not in seen and one > 0}
    if not never:
        return []
    mass = sum(never.values()) / len(_totals(shares))
    return [
        f"{100 * mass:.2g}% of the decisions of {name} are actions that the log never has, such as "
        f"{next(iter(never))!r}: what they earn cannot be told from it"
    ]


def against_own_rewards(evaluation: Evaluation, target: DecisionLog) -> list[dict[str, Any]]:
    """Return each estimate of the target's policy beside the mean reward of the target's log.

    The two logs are independent samples of one population, so that errors add in squares.
    """
    own = normal_interval(*ESTIMATORS["IPS"](as_logged(target)).up_to(evaluation.horizon))
    rows = []
    for row in evaluation.estimates:
        if row["policy"] != TARGET or row["estimator"] not in ESTIMATORS:
            continue
        error = math.hypot(row["stderr"], own.stderr)
        difference = normal(row["value"] - own.value, error)
        rows.append(
            {
                "estimator": row["estimator"],
                "value": row["value"],
                "stderr": row["stderr"],
                "own": own.value,
                "own_stderr": own.stderr,
                "difference": difference.value,
                "low": difference.low,
                "high": difference.high,
            }
        )
    return rows


def _named(frame: pl.DataFrame, action: str, position: str | None) -> pl.DataFrame:
    names = pl.col(action).cast(pl.String)
    if position is not None:
        names = pl.concat_str(names, pl.lit(" @ "), pl.col(position).cast(pl.String))
    return frame.with_columns(names.alias(action))


def _where(action: str) -> str:
    """Return the position of a named action as words of a message; "" if it has none."""
    position = action.rpartition(" @ ")[2] if " @ " in action else ""
    return f" at position {position}" if position else ""


def _totals(shares: Shares) -> dict[str, float]:
    totals: dict[str, float] = {}
    for action, chance in shares.items():
        totals[_where(action)] = totals.get(_where(action), 0.0) + chance
    return totals
