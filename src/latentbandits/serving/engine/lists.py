"""Lists: check which list a request asks for, and read which rewards a report observed.

A list is one decision. Its reward is one event with a reward for each position that was observed,
and its value is their sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from latentbandits.models.clicks import Cascade, ClickModel
from latentbandits.policies.lists import check_click_model
from latentbandits.serving.engine.actions import PolicyInputs
from latentbandits.serving.engine.models import Library, stored_click_model
from latentbandits.serving.engine.sessions import Live
from latentbandits.serving.engine.values import MAX_LENGTH, RewardReport
from latentbandits.serving.errors import Conflict, Invalid
from latentbandits.serving.records import (
    DecisionRow,
    RewardKind,
    RewardRow,
    rewards_by_position,
    shown_actions,
)


def click_model_for(
    library: Library, live: Live, length: int, inputs: PolicyInputs | None
) -> ClickModel:
    """Return the click model of a list for this session; Invalid if there cannot be such a list."""
    if not 1 <= length <= MAX_LENGTH:
        raise Invalid(
            f"length must be from 1 to {MAX_LENGTH}; got {length}: leave it out for a single action"
        )
    if inputs is not None:
        mask = inputs.eligible
        n_eligible = inputs.n_actions if mask is None else int(mask.sum())
        if length > n_eligible:
            raise Invalid(
                f"length {length} is more than the {n_eligible} actions that are eligible: ask for "
                "a shorter list"
            )
    clicks = library.click_model(live.served)
    try:
        check_click_model(live.policy, clicks)
        clicks.check_length(length)
    except ValueError as error:
        raise Invalid(str(error)) from None
    return clicks


def observed_rewards(
    row: DecisionRow, report: RewardReport, kind: RewardKind, current: RewardRow | None
) -> list[float | None]:
    """Return the rewards of a list after this report, by position; None: not observed.

    A report may name some positions, and later reports add others. A reported reward takes the
    place of a default. A correction replaces the positions that it names.
    """
    clicks = stored_click_model(row.click_model or "")
    told = _told(row, report, kind, clicks)
    if current is not None and current.kind != "default":
        before = rewards_by_position(row, current)
        if kind == "reward":
            _check_same(row, report, before, told)
        if kind == "reward" or not _clicked(report):
            told = [old if new is None else new for old, new in zip(before, told, strict=True)]
    rewards = np.array([[np.nan if value is None else value for value in told]])
    try:
        (seen,) = clicks.observed(rewards).tolist()
    except ValueError as error:
        raise Invalid(f"list {report.decision_id}: {error}") from None
    # adding 0.0 removes negative zero, which SQLite does not store
    return [None if math.isnan(value) else value + 0.0 for value in seen]


def _clicked(report: RewardReport) -> bool:
    return report.clicked is not msgspec.UNSET


def _told(
    row: DecisionRow, report: RewardReport, kind: RewardKind, clicks: ClickModel
) -> list[float | None]:
    """Return the rewards that a report states or implies, by position; None: neither."""
    shown = shown_actions(row)
    if kind == "default" and not isinstance(report.value, msgspec.UnsetType):
        return [report.value] * len(shown)
    if not isinstance(report.value, msgspec.UnsetType) or _clicked(report) == bool(report.values):
        raise Invalid(
            f"decision {report.decision_id} is a list: say which action was `clicked` (null: "
            "none), or give the `values` of its actions, and nothing else"
        )
    named = list(report.values or ())
    if isinstance(report.clicked, str):
        named.append(report.clicked)
    for action in named:
        if action not in shown:
            raise Invalid(
                f"{action!r} is not in the list {report.decision_id}, which showed "
                f"{', '.join(shown)}"
            )
    if report.values:
        return [report.values.get(action) for action in shown]
    if not isinstance(clicks, Cascade):
        raise Invalid(
            "`clicked` is for the click model cascade, where at most one action is clicked; this "
            f"list has {clicks.text}: send `values`, a reward for each action"
        )
    return [1.0 if action == report.clicked else 0.0 for action in shown]


def _check_same(
    row: DecisionRow,
    report: RewardReport,
    before: Sequence[float | None],
    told: Sequence[float | None],
) -> None:
    """Refuse another reward for a position that has one."""
    for action, old, new in zip(shown_actions(row), before, told, strict=True):
        if old is not None and new is not None and old != new:
            raise Conflict(
                f"{action!r} of the list {report.decision_id} was rewarded with {old}, not {new}: "
                "an action of a list has one reward (PUT corrects it)"
            )
