"""Read the side information that `fit` is given: columns of users and rows, and their encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from latentbandits.learning.attributes.encoding import (
    Encoded,
    SumColumns,
    UserAttributes,
    columns_of,
    learn_attributes,
    learn_features,
)
from latentbandits.learning.backends.backend import Engine
from latentbandits.learning.logs.formats import LogError, TextFormat
from latentbandits.learning.logs.interactions import DECISION
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import TableSource, column_names, read_table
from latentbandits.models.attributes.columns import Encoder

FEATURES = "features"
"""The column of an export with the features that requests sent."""


def columns(
    user_features: Sequence[str],
    features: Sequence[str],
    user: str | None = None,
    reward: str | None = None,
) -> list[str]:
    """Return the columns to read besides user, action and reward; LogError if they are invalid.

    `user` and `reward` are the names of these columns, if they are not called so.
    """
    for option, names in (("user_features", user_features), ("features", features)):
        if isinstance(names, str):
            raise LogError(f"{option} must be a list of columns; got the text {names!r}")
        shown = f"--{option.replace('_', '-')}"
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        if twice:
            raise LogError(f"{shown} names {twice[0]} twice")
        single = names if option == "user_features" else columns_of(names)
        if (reward or "reward") in single:
            raise LogError(
                f"{shown} {reward or 'reward'}: the reward is what is predicted, and is not known "
                "when an action is chosen"
            )
        if (user or "user") in single:
            raise LogError(
                f"{shown} {user or 'user'}: the id of a user says nothing about other users"
            )
    return list(dict.fromkeys([*user_features, *columns_of(features)]))


def default_features(log: Log | TableSource, text_format: TextFormat) -> list[str]:
    """Return ["features"] for exports of a service whose requests send features, else []."""
    if isinstance(log, Log):
        return []
    parts = log if isinstance(log, (list, tuple)) else [log]
    for part in parts:
        names = column_names(part)
        if DECISION not in names or FEATURES not in names:
            return []
        column = read_table(part, [FEATURES], text_format=text_format).frame[FEATURES]
        if column.dtype == pl.Null or column.null_count():
            return []
    return [FEATURES]


def check_kind(kind: str, rank: object, transform: object, item_features: object) -> None:
    """Refuse options of other kinds of models together with features."""
    for option, value, default in (
        ("kind", kind, "auto"), ("rank", rank, "auto"), ("transform", transform, None),
    ):  # fmt: skip
        if value != default:
            raise LogError(f"--{option} {value} is not for a model of --features: leave it out")
    if item_features is not None:
        raise LogError("item_features are for models of actions, not together with features")


@dataclass(frozen=True, eq=False)
class Side:
    """The side information of users and rows; the log holds both as numbers."""

    log: Engine
    users: UserAttributes | None = None
    rows: Encoder | None = None


def learn_side(
    log: Engine, user_features: Sequence[str], features: Sequence[str], action: str | None
) -> Side:
    """Return the log with its users' attributes and its rows' features, encoded.

    `action` is the column of actions; if it is a feature, a request's action ids fill it in.
    """
    if not user_features and not features:
        return Side(log)
    sums = log.fold(SumColumns(tuple(columns_of(features)), tuple(user_features)), None)
    users = learn_attributes(log, sums) if user_features else None
    rows = None
    if features:
        rows = learn_features(sums, features)
        name = action or "action"
        rows = replace(rows, action=name if name in rows.names else None)
    change = Encoded(rows, None if users is None else users.encoder)
    return Side(log.mapped(change), users, rows)
