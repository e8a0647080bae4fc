"""Requests for side information: the columns that `fit` reads, and how it uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from latentbandits.learning.formats import LogError, TextFormat
from latentbandits.learning.interactions import DECISION, Interactions
from latentbandits.learning.logs import Log
from latentbandits.learning.side.encoding import (
    UserAttributes,
    columns_of,
    encode,
    learn_encoder,
    user_attributes,
)
from latentbandits.learning.tables import TableSource, column_names, read_table
from latentbandits.models.attributes.encoder import Encoder

FEATURES = "features"
"""The column of an export with the features that callers brought."""


def columns(user_features: Sequence[str], features: Sequence[str]) -> list[str]:
    """Return the columns to read beside user, action and reward; LogError if they cannot be."""
    for option, names in (("user_features", user_features), ("features", features)):
        if isinstance(names, str):
            raise LogError(f"{option} must be a list of columns; got the text {names!r}")
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        if twice:
            raise LogError(f"--{option.replace('_', '-')} names {twice[0]} twice")
    return list(dict.fromkeys([*user_features, *columns_of(features)]))


def default_features(log: Log | TableSource, text_format: TextFormat) -> list[str]:
    """Return ["features"] for exports of a service whose callers bring features, else nothing."""
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


def check_kind(kind: str, rank: object, transform: object) -> Literal["linear"]:
    """Refuse options of other kinds of models together with features."""
    for option, value, default in (
        ("kind", kind, "auto"), ("rank", rank, "auto"), ("transform", transform, None),
    ):  # fmt: skip
        if value != default:
            raise LogError(f"--{option} {value} is not for a model of --features: leave it out")
    return "linear"


@dataclass(frozen=True, eq=False)
class Side:
    """The side information of users and rows; the log holds both as numbers."""

    log: Log | None
    users: UserAttributes | None
    rows: Encoder | None


def read_side(
    read: Interactions, user_features: Sequence[str], features: Sequence[str], action: str | None
) -> Side:
    """Return the log with its users' attributes and its rows' features, encoded.

    `action` is the column of actions: where it is a feature, a request's action ids fill it in.
    """
    users = attributes(read, user_features)
    log = read.log if users is None else replace(read.log, attributes=users.encoded)
    if not features:
        return Side(log, users, None)
    if read.more is None:
        raise LogError("features are columns of a table: give `fit` the table itself, not a Log")
    encoder = learn_encoder(read.more, features)
    name = action or "action"
    encoder = replace(encoder, action=name if name in encoder.names else None)
    return Side(replace(log, features=encode(encoder, read.more)), users, encoder)


def attributes(read: Interactions, user_features: Sequence[str]) -> UserAttributes | None:
    """Return the users' attributes, encoded; None if there are none to read."""
    if not user_features:
        return None
    if read.more is None:
        raise LogError(
            "user_features are columns of a table: give `fit` the table itself, not a Log"
        )
    return user_attributes(read.log, read.more, user_features)
