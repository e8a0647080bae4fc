"""Users of a population: a policy that learns across users knows them by rows, callers by ids.

Where a policy learns across users, a session is a population: all its users share one belief. A
user's id gets the next free row at its first decision. The row is kept in the store, and logged
with each decision, so that a replay needs nothing but the log.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from latentbandits.models.checks import FloatArray
from latentbandits.models.visit import Visit
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.serving.errors import Invalid
from latentbandits.serving.records import VISITORS
from latentbandits.serving.stores.protocol import Store


def users_of(policy: AnyPolicy) -> int | None:
    """Return for how many users a policy is made; None if each session has a belief of its own.

    >>> from latentbandits import HierTS, UCB1
    >>> users_of(HierTS(n_users=7, n_features=2)), users_of(UCB1(3))
    (7, None)
    """
    return policy.population_size


def visit(row: int, features: FloatArray | None) -> Any:
    """Return the context of a population policy for the user of this row."""
    return Visit(np.array([row]), features)


class Visitors:
    """Gives the users of each population their rows."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def row(self, population: int, name: str, user: str | None, n_users: int) -> int:
        """Return the row of a user in the population of this key, a new one for a new user."""
        if user is None:
            raise Invalid(
                f"{name!r} is a population, whose users share what is learned: say in `user` for "
                "whom the decision is"
            )
        place = f"{VISITORS}{population}/"
        # Only the log holds the id itself; the hash here has a fixed length.
        mine = place + hashlib.blake2b(user.encode(), digest_size=16).hexdigest()
        note = self._store.note(mine)
        if note is not None:
            return int(note)
        taken = int(self._store.note(place) or 0)
        if taken >= n_users:
            raise Invalid(
                f"the population {name!r} has {taken} users, and the policy was made for "
                f"n_users={n_users}: start the service with a larger number"
            )
        self._store.put_note(mine, str(taken).encode())
        self._store.put_note(place, str(taken + 1).encode())
        return taken
