"""Warnings about a fit: conditions under which its report should not be taken at face value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latentbandits.learning.attributes.tables import side_notes
from latentbandits.learning.backends.backend import AnyLog, summary_of
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.summary import LogSummary

FAR_FROM_LEVEL = 0.07
"""Distance of an interval's coverage from its level that is worth a warning."""

ONE_ROW = 0.5
"""Share of users with a single row above which sessions are too short to identify a state."""

ALIKE = 0.05
"""Share of the variance between states that is not a constant, below which only levels differ."""


def cautions(log: AnyLog, learned: Learned, report: Mapping[str, Any]) -> list[str]:
    """Return the warnings of a fit, one sentence each.

    Args:
        log: the log that was learned from.
        learned: the model.
        report: the report on it, as `fit` makes it.
    """
    summary = summary_of(log)
    if summary.rewards.least == summary.rewards.most:
        return _about_log(summary)  # other warnings would follow from this one
    return [
        *_about_log(summary),
        *_about_prediction(report["held_out"]),
        *_about_choice(report["selection"], report["settings"], min(log.n_users, log.n_actions)),
        *(() if report["settings"].get("features") else _about_states(learned)),
        *_about_verdict(report.get("judgement")),
        *side_notes(report),
    ]


def _about_log(log: LogSummary) -> list[str]:
    warnings = []
    if log.rewards.least == log.rewards.most:
        warnings.append(
            f"all {log.n_events:,} rewards are {log.rewards.least:g}: there is nothing to learn; "
            "is it the right column?"
        )
    single = float(log.users_of_length[log.lengths == 1].sum() / log.n_users)
    if single > ONE_ROW:
        warnings.append(
            f"{single:.0%} of the users have one row only: states can hardly be told apart; is it "
            "the right column of users?"
        )
    return warnings


def _about_prediction(held_out: Mapping[str, Any]) -> list[str]:
    """Warn of every doubt that the recommendation depends on, and of intervals far from level."""
    warnings = list(held_out["doubts"])
    worst = max(held_out["coverage"], key=lambda row: abs(row["covered"] - row["level"]))
    if abs(worst["covered"] - worst["level"]) > FAR_FROM_LEVEL:
        warnings.append(
            f"{worst['level']:.0%} intervals hold {worst['covered']:.1%} of the held-out rewards: "
            "the model is wrong about their distribution; try another --rewards or --transform"
        )
    return warnings


def _about_choice(
    rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], most_rank: int
) -> list[str]:
    """Warn about a choice at the end of its grid: a better one may lie beyond.

    Grids are extended while evidence rises, so that this is rare. The rank of a matrix is at most
    `most_rank`, and there is no better one beyond that.
    """
    warnings = []
    chosen = next(row for row in rows if row["chosen"])
    requested = settings.get("asked", {})
    for name, key, option in (
        ("number of states", "states", "--states"),
        ("rank", "rank", "--rank"),
    ):
        tried = sorted({row[key] for row in rows if row[key] is not None and row["evidence"]})
        if requested.get(key) == "auto" and len(tried) > 1 and chosen[key] == tried[-1]:
            failed = any(row["evidence"] is None for row in rows)
            possible = key == "states" or chosen[key] < most_rank
            if possible and not failed:
                warnings.append(
                    f"the chosen {name}, {chosen[key]}, is the largest that was tried: a larger "
                    f"one may be better ({option})"
                )
    return warnings


def _about_states(learned: Learned) -> list[str]:
    """Warn if states differ by a constant only: their best actions are then the same."""
    rewards = learned.rewards()
    if len(rewards) < 2:
        return []
    weights = learned.counts / learned.counts.sum()
    prior = np.exp(learned.model.log_state_prior[0])
    offsets = rewards - prior @ rewards
    level = offsets @ weights
    total = float(prior @ (offsets**2 @ weights))
    tastes = float(prior @ ((offsets - level[:, None]) ** 2 @ weights))
    if total == 0 or tastes < ALIKE * total:
        return [
            "the states differ by a constant only: their users like the same actions, and knowing "
            "the state changes no decision"
        ]
    return []


def _about_verdict(judgement: Mapping[str, Any] | None) -> list[str]:
    if judgement is None:
        return []
    if not judgement["replay"]:
        return ["fewer than two held-out users have three rows or more: nothing could be replayed"]
    if judgement["verdict"] == "harms":
        return [f"the model harms: {judgement['sentence']}"]
    policy, horizon = judgement["recommended_policy"], judgement["horizon"]
    early = [
        row
        for row in judgement["replay"]
        if row["policy"] == policy
        and row["rounds"] < horizon
        and row["over_popularity"] < -2 * row["over_popularity_stderr"]
    ]
    return [
        f"{policy} starts below the best average action: {row['over_popularity']:+.4g} a round in "
        f"rounds 1-{row['rounds']}"
        for row in early
    ]
