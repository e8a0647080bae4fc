"""Requests for side information: the columns that `fit` reads, and how it uses them."""

from __future__ import annotations

from collections.abc import Sequence

from latentbandits.learning.formats import LogError
from latentbandits.learning.interactions import Interactions
from latentbandits.learning.logs import Log
from latentbandits.learning.side.encoding import UserAttributes, user_attributes
from latentbandits.learning.tables import TableSource


def columns(log: Log | TableSource, user_features: Sequence[str]) -> list[str]:
    """Return the columns to read beside user, action and reward; LogError if they cannot be."""
    if isinstance(user_features, str):
        raise LogError(f"user_features must be a list of columns; got the text {user_features!r}")
    twice = [name for i, name in enumerate(user_features) if name in user_features[:i]]
    if twice:
        raise LogError(f"--user-features names {twice[0]} twice")
    return list(user_features)


def attributes(read: Interactions, user_features: Sequence[str]) -> UserAttributes | None:
    """Return the users' attributes, encoded; None if there are none to read."""
    if not user_features:
        return None
    if read.more is None:
        raise LogError(
            "user_features are columns of a table: give `fit` the table itself, not a Log"
        )
    return user_attributes(read.log, read.more, user_features)
