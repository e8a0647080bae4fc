"""Read logs, including exports of the service, as one log; columns are found by name."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from latentbandits.learning.backends.backend import Engine
from latentbandits.learning.backends.out_of_core import MORE
from latentbandits.learning.logs.formats import DETECTED, LogError, TextFormat
from latentbandits.learning.logs.rows import Log, conversion, read_log_with, seconds_of
from latentbandits.learning.logs.tables import (
    TableSource,
    as_text,
    check_columns,
    column_names,
    latest,
    read_table,
)

DECISION = "decision_id"
"""The column of decision ids, by which an export of the service is recognised."""

LIST, POSITION = "list_id", "list_position"
"""The columns of an export of lists."""

CURSOR = "cursor"
"""The column of an export that orders the rows of one decision."""

USER_FEATURES = "user_features"
"""The column of an export with the attributes of the session's user, as JSON."""

_USERS = ("user", "session")


class Interactions(NamedTuple):
    """A log, and the treatment of decisions that had no reward."""

    log: Log
    n_unrewarded: int = 0  # decisions without a reward
    filled_with: float | None = None  # their reward; None: they were dropped
    n_replaced: int = 0  # rows that a later row of the same decision replaced
    more: pl.DataFrame | None = None  # further columns, one row for each event of the log


class OnEngine(NamedTuple):
    """A log on its engine, its `Interactions` if it is in memory, and its bytes in partitions."""

    engine: Engine
    read: Interactions | None = None
    disk: int | None = None

    def report(self) -> dict[str, Any]:
        """Return plain data for report.json."""
        return {"name": self.engine.name, "partitions": self.engine.n_buckets, "disk": self.disk}


def find_columns(
    source: TableSource,
    user: str | None,
    action: str | None,
    reward: str | None,
    text_format: TextFormat,
) -> tuple[tuple[str, str, str], bool]:
    """Return the columns of users, actions and rewards, and whether the log is an export."""
    first = source[0] if isinstance(source, (list, tuple)) else source
    names = _columns(first, text_format)
    return name_columns(names, user, action, reward), DECISION in names


def name_columns(
    names: list[str], user: str | None, action: str | None, reward: str | None
) -> tuple[str, str, str]:
    """Return the columns of users, actions and rewards among `names`; those not given are found."""
    return (
        user or _column(names, _USERS, "user"),
        action or _column(names, ("action",), "action"),
        reward or _column(names, ("reward",), "reward"),
    )


def read_interactions(
    source: TableSource,
    *,
    user: str | None = None,
    action: str | None = None,
    reward: str | None = None,
    order: str | None = None,
    text_format: TextFormat = DETECTED,
    unrewarded: float | None = None,
    more: Sequence[str] = (),
    lists: tuple[str, str] | None = None,
    timed: bool = False,
) -> Interactions:
    """Read one log or several, each with the columns that are named, or found.

    A table without the column `user` has its users in "user" or "session". Several rows of one
    decision (an export writes a decision again when its reward comes late) count once, the newest
    of them. Decisions of an export without a reward are dropped, or get the reward `unrewarded`;
    in other tables a missing reward is an error unless `unrewarded` is given. The columns `more`
    are read too; an export has the users' attributes in `user_features`, and its column
    `features` is read as the features of the action that was chosen. `lists` are the columns of
    lists and of positions, if rows are positions of lists: then a row without a reward was not
    observed, and is dropped in any table. With `timed` the log has the times of its rows.

    >>> table = {"decision_id": ["a", "b", "c"], "session": ["x", "x", "y"], "action": [0, 1, 1],
    ...          "reward": [1.0, None, 0.0]}
    >>> interactions = read_interactions(table)
    >>> interactions.log.n_events, interactions.n_unrewarded
    (2, 1)
    """
    if unrewarded is not None and not math.isfinite(unrewarded):
        raise LogError(f"the unrewarded value must be a finite number; got {unrewarded}")
    parts = source if isinstance(source, (list, tuple)) else [source]
    several = len(parts) > 1 and not all(isinstance(part, (str, os.PathLike)) for part in parts)
    if several:
        raise LogError("a list of tables must hold paths; concatenate frames before")
    columns = [_columns(part, text_format) for part in parts]
    exports = [DECISION in names for names in columns]
    more = [*more, *(name for name in lists or () if name not in more)]
    if not any(exports) and unrewarded is None and lists is None:
        names = columns[0]
        found = name_columns(names, user, action, reward)
        plain, beside = read_log_with(
            source, *found, more, order=order, timed=timed, text_format=text_format
        )
        return Interactions(plain, more=beside)
    frames = [
        _frame(part, names, user, action, reward, order, text_format, more, timed)
        for part, names in zip(parts, columns, strict=True)
    ]
    everything = _concatenated(frames)
    total = len(everything)
    if lists is not None:
        everything = _in_lists(everything, *(MORE + name for name in lists))
    frame = latest(everything, "id", "cursor").drop("id", "cursor")
    replaced = total - len(frame)
    missing = frame["reward"].is_null() | frame["reward"].is_nan()
    n_missing = int(missing.fill_null(True).sum())
    if unrewarded is not None:
        frame = frame.with_columns(pl.col("reward").fill_nan(None).fill_null(unrewarded))
    else:
        frame = frame.filter(~missing.fill_null(True))
    if frame.is_empty():
        raise LogError(
            f"none of the {total} decisions has a reward: report rewards to the service, or say "
            "what a missing one means (unrewarded=0 for clicks)"
        )
    has_order = order is not None and frame["order"].null_count() == 0
    if timed and not has_order:
        raise LogError(f"session_gap needs a time in every row: the column {order} lacks some")
    log, beside = read_log_with(
        frame,
        "user",
        "action",
        "reward",
        [MORE + name for name in more],
        order="order" if has_order else None,
        timed=timed,
    )
    beside = beside.rename({MORE + name: name for name in more})
    return Interactions(log, n_missing, unrewarded, replaced, beside)


def has_lists(source: TableSource) -> bool:
    """Return whether the log is an export in which a decision was of a list."""
    for part in source if isinstance(source, (list, tuple)) else [source]:
        if {DECISION, LIST, POSITION} <= set(column_names(part)):
            table = read_table(part, [LIST], text=[LIST]).frame
            if table[LIST].null_count() < len(table):
                return True
    return False


def _in_lists(frame: pl.DataFrame, list_column: str, position: str) -> pl.DataFrame:
    """Return the rows list by list, from the top; ids name the position of a decision."""
    place, row = pl.col(position).cast(pl.Float64, strict=False), pl.col("__row")
    alone = pl.when(pl.col(list_column).is_null()).then(row)
    return (
        frame.with_row_index("__row")
        .with_columns(
            pl.col("id") + "/" + place.fill_null(0).cast(pl.String),
            alone.otherwise(row.min().over(list_column)),
        )
        .sort("__row", place, maintain_order=True)
        .drop("__row")
    )


def _concatenated(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the tables; times that are numbers in some and text in others become text."""
    kinds = {frame["order"].dtype for frame in frames} - {pl.Null()}
    if len(kinds) > 1 and not all(kind.is_numeric() for kind in kinds):
        frames = [frame.with_columns(pl.col("order").cast(pl.String)) for frame in frames]
    return pl.concat(frames, how="vertical_relaxed")


def _columns(source: TableSource, text_format: TextFormat) -> list[str]:
    if text_format.columns is not None and isinstance(source, (str, os.PathLike)):
        return list(text_format.columns)
    return column_names(source)


def _column(names: list[str], wanted: tuple[str, ...], option: str) -> str:
    for name in wanted:
        if name in names:
            return name
    raise LogError(
        f"the log has no column {' or '.join(wanted)}: name it with --{option} (or {option}=); "
        f"its columns are {', '.join(names)}"
    )


def _frame(
    source: TableSource,
    names: list[str],
    user: str | None,
    action: str | None,
    reward: str | None,
    order: str | None,
    text_format: TextFormat,
    more: Sequence[str],
    timed: bool,
) -> pl.DataFrame:
    """Return one table's rows as columns user, action, reward, order, id and cursor, and `more`."""
    own_user = user if user in names else _column(names, _USERS, "user")
    own_action = action if action in names else _column(names, ("action",), "action")
    own_reward = reward if reward in names else _column(names, ("reward",), "reward")
    wanted = [own_user, own_action, own_reward]
    wanted += [name for name in (order, DECISION, CURSOR) if name in names]
    beside = [name for name in more if name in names]
    packed = len(beside) < len(more) and USER_FEATURES in names
    beside += [USER_FEATURES] if packed else []
    beside += ["index"] if "features" in beside and "index" in names else []
    if not packed:
        check_columns(more, names, "the log")
    wanted = list(dict.fromkeys([*wanted, *beside]))
    text = [own_user, own_action] + [name for name in (DECISION, CURSOR) if name in wanted]
    table = read_table(source, wanted, text=text, text_format=text_format).frame
    stated = table[own_reward]
    rewards = stated.cast(pl.Float64, strict=False)
    unreadable = rewards.is_null() & stated.is_not_null()
    if stated.dtype == pl.String:
        unreadable &= stated.str.strip_chars() != ""
    if unreadable.any():
        row = int(unreadable.arg_max() or 0)
        advice = conversion(stated.filter(unreadable))
        raise LogError(f"{own_reward} is not a number in row {row + 1}: {stated[row]!r}. {advice}")
    nothing = pl.Series([None] * len(table), dtype=pl.String)
    times = pl.Series([None] * len(table), dtype=pl.Null)
    if order is not None and order in wanted:
        times = table[order]
        if timed:  # seconds, which are the same in all tables
            times = pl.Series(seconds_of(times, order))
    return pl.DataFrame(
        {
            "user": as_text(table[own_user]),
            "action": as_text(table[own_action]),
            "reward": rewards,
            "order": times,
            "id": as_text(table[DECISION]) if DECISION in wanted else nothing,
            "cursor": as_text(table[CURSOR]) if CURSOR in wanted else nothing,
            **{MORE + name: _beside(table, name) for name in more},
        }
    )


def _beside(table: pl.DataFrame, name: str) -> pl.Series:
    """Return a further column: the table's own, or one of an export's `user_features`."""
    if name not in table.columns:
        users = [None if text is None else json.loads(text) for text in table[USER_FEATURES]]
        values = [None if user is None else user.get(name) for user in users]
        return pl.Series(name, values, strict=False)
    column = table[name]
    if name != "features" or "index" not in table.columns:
        return column
    rows = [_parsed(value) for value in column]
    chosen = [
        value[index] if value and isinstance(value[0], list) else value
        for value, index in zip(rows, table["index"].cast(pl.Int64), strict=True)
    ]
    return pl.Series(name, chosen, dtype=pl.List(pl.Float64))


def _parsed(value: Any) -> Any:
    """Return the value, parsed if it is JSON text."""
    if value is None or isinstance(value, list):
        return value
    return json.loads(value) if isinstance(value, str) else value.to_list()
