"""The report on optional parts of a fit as tables, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latentbandits.report.report import Estimate, Table


def side_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return a table of optional steps, and one for each kind of side information."""
    tables = []
    if report.get("steps"):
        tables.append(_steps(report["steps"]))
    if report.get("user_features"):
        tables.append(_worth(report["user_features"]))
    if report.get("item_features"):
        tables.append(_items(report["item_features"]))
    return tables


def _steps(steps: Sequence[Mapping[str, Any]]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            step["step"],
            _estimate(step["nats_per_user"], step["stderr"] or 0.0),
            "used" if step["used"] else "left out: it lowers the evidence",
        )
        for step in steps
    ]
    title = "Optional steps, by the evidence of held-out users"
    return Table(title, ("step", "nats a user, with less without", ""), rows)


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


def one_state_sentence(report: Mapping[str, Any]) -> str:
    """Return what the report says about one state; empty if it earns less than several."""
    compared = report.get("one_state")
    return str(compared["sentence"]) if compared else ""


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
