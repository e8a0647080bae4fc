"""Merge two sessions of one user: their rows, totals and beliefs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from latentbandits.serving.engine.ids import OrderSequence
from latentbandits.serving.engine.open_session import Live, floats
from latentbandits.serving.engine.sessions import Sessions
from latentbandits.serving.engine.statistics import Changes, Statistics
from latentbandits.serving.errors import Invalid
from latentbandits.serving.stores.protocol import Store


class Merging:
    """Merges sessions; `snapshots` says whether the belief of the whole is kept in the store."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        orders: OrderSequence,
        clock: Callable[[], int],
        changes: Changes,
        *,
        snapshots: bool,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._orders = orders
        self._clock = clock
        self._changes = changes
        self._snapshots = snapshots

    def merge(self, kept: Live, merged: Live) -> None:
        """Add the rewards of `merged` to `kept`, and close it; Invalid if either has many users."""
        a, b = kept.row, merged.row
        if kept.group.n_users is not None or merged.group.n_users is not None:
            raise Invalid(
                f"{a.name!r} and {b.name!r} are populations, each with users of its own: merging "
                "them would not merge users, and is refused"
            )
        at = self._orders.next(max(a.last_order, b.last_order))

        def change(totals: Statistics) -> None:
            totals.move_share(b.model, floats(b.probabilities), [])
            totals.group(a.group).add_session(a.reward_sum, a.rewards, sign=-1)
            totals.group(b.group).add_session(b.reward_sum, b.rewards, sign=-1)
            totals.group(a.group).add_session(a.reward_sum + b.reward_sum, a.rewards + b.rewards)
            totals.count("merged")

        self._changes.add(change)
        row = msgspec.structs.replace(
            a,
            rounds=a.rounds + b.rounds,
            rewards=a.rewards + b.rewards,
            reward_sum=a.reward_sum + b.reward_sum,
            last_order=at,
            seen=self._clock(),
            members=a.members + b.members + 1,
            revision=a.revision + 1,
            user_features=a.user_features or b.user_features,
        )
        together = self._sessions.beliefs.merged(kept, merged, row)
        self._store.put_session(
            msgspec.structs.replace(
                b, open=False, merged_into=a.key, merged_at=at, probabilities=b""
            )
        )
        self._store.drop_snapshot(b.key)
        self._sessions.drop(b)
        if together is None:
            self._store.put_session(row)
            self._store.drop_snapshot(a.key)
            self._sessions.drop(a)
        else:
            self._sessions.replace(together)
            if self._snapshots:
                self._sessions.beliefs.snapshot(together)
