"""The report on side information as tables, for the terminal and the page of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.rows import Log
from latentbandits.report.report import Estimate, Table


def side_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return a table for each kind of side information that the fit used."""
    tables = []
    if report.get("user_features"):
        tables.append(_worth(report["user_features"]))
    if report.get("item_features"):
        tables.append(_items(report["item_features"]))
    return tables


def _items(items: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            row["vectors"],
            _estimate(row["reward"], row["stderr"]).lstrip("+"),
            ""
            if row["vectors"] == "learned"
            else _estimate(row["over_learned"], row["over_learned_stderr"]),
        )
        for row in items["replay"]
    ]
    title = (
        f"New items by {', '.join(items['columns'])}: {items['explained']:.0%} of what expected "
        "rewards differ by is predicted; held-out users on items as if new, rounds 1-20"
    )
    return Table(title, ("vectors", "reward", "over learned"), rows)


def side_notes(report: Mapping[str, Any]) -> list[str]:
    """Return warnings about side information, one sentence each."""
    notes = []
    users = report.get("user_features")
    if users and users["users_whose_attributes_change"]:
        notes.append(
            "attributes change between the rows of a user (number of such users: "
            f"{users['users_whose_attributes_change']:,}): the first value by time is taken"
        )
    if users and not users["used"]:
        notes.append(
            f"attributes of users ({', '.join(users['columns'])}) predicted nothing about users "
            "outside the fit: they are accepted, and change nothing"
        )
    items = report.get("item_features")
    if items and items["ridge"] is None:
        notes.append(
            f"attributes of items ({', '.join(items['columns'])}) predicted nothing about items "
            "left out: they are accepted, and a new item is the average one"
        )
    return notes


def _worth(worth: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            str(row["round"]),
            _estimate(row["nats"], row["nats_stderr"]),
            f"{row['users']:,}",
            _estimate(row["reward"], row["reward_stderr"]),
            f"{row['players']:,}",
        )
        for row in worth["worth"]
    ]
    names = ", ".join(worth["columns"])
    title = f"What {names} are worth on held-out users (with less without; {worth['policy']})"
    return Table(title, ("round", "nats a reward", "users", "reward", "users played"), rows)


def _estimate(mean: float | None, stderr: float | None) -> str:
    return "" if mean is None or stderr is None else f"{Estimate(mean, stderr):+}"


# Convert logs with features of rows to logs with features of actions.


def rows_as_actions(learned: Learned, log: Log) -> tuple[Learned, Log]:
    """Return model and log with every row as a separate action that has the row's features."""
    assert log.features is not None
    rows_log = replace(
        log,
        actions=np.arange(log.n_events),
        action_ids=tuple(str(row) for row in range(log.n_events)),
    )
    counts = np.ones(log.n_events, np.int64)
    return replace(learned, features=log.features, counts=counts), rows_log
