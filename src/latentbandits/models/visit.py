"""The context of a population policy: who asks, and the features of every action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray, features


@dataclass(frozen=True, eq=False)
class Visit:
    """One visit to each of B populations: a belief is shared by all users of a population.

    `visit[index]` keeps some of the populations.

    Args:
        user: `(B,)`, rows from 0 to n_users - 1.
        features: `(B, K, d)`; None where actions are items with ids.

    >>> Visit(np.array([3, 5]), None)[np.array([1])].user
    array([5])
    """

    user: IntArray
    features: FloatArray | None = None

    def __getitem__(self, index: IntArray) -> Visit:
        return Visit(self.user[index], None if self.features is None else self.features[index])


def check_visit(
    context: Any, n_populations: int, n_users: int, n_features: int | None
) -> tuple[IntArray, FloatArray | None]:
    """Return the users `(B,)` and the features `(B, K, d)` of a visit; ValueError if it has none.

    `n_features` None is for policies whose actions are items with ids: they take no features.
    """
    if not isinstance(context, Visit):
        raise ValueError(
            "a population policy needs to know who asks: pass Visit(user, features); "
            f"got {type(context).__name__}"
        )
    user = check_users(context.user, n_populations, n_users)
    if n_features is not None:
        return user, features(context.features, n_populations, n_features)
    if context.features is not None:
        raise ValueError(
            "this policy's actions are items with ids: pass Visit(user, None); got features of "
            f"shape {np.shape(context.features)}"
        )
    return user, None


def check_users(user: Any, n_populations: int, n_users: int) -> IntArray:
    """Return `user` as rows `(n_populations,)` from 0 to `n_users` - 1."""
    try:
        users = np.asarray(user)
    except ValueError:
        users = np.asarray(None)
    if users.dtype.kind not in "iu":
        raise ValueError(
            f"Visit.user must be whole numbers, rows from 0 to {n_users - 1}; got {user!r}: number "
            "your users' ids first"
        )
    if users.shape != (n_populations,):
        raise ValueError(
            f"Visit.user must have one user for each of {n_populations} populations; "
            f"got shape {users.shape}"
        )
    if users.min() < 0 or users.max() >= n_users:
        bad = int(users[(users < 0) | (users >= n_users)][0])
        raise ValueError(
            f"user {bad} is out of range: this policy was made for n_users={n_users}, "
            f"0 to {n_users - 1}"
        )
    return users.astype(np.int64, copy=False)
