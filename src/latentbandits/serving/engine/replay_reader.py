"""The rewards of a long replay, in order: each part of the replay reads only its own."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from latentbandits.serving.records import RewardedDecision, SessionRow
from latentbandits.serving.stores.protocol import LAST, Store

_PORTION = 10_000  # places that are read at a time


class _Portion(NamedTuple):
    """Places of a session's replay, and the orders of the rewards there.

    No reward between the place `after` and the first of these counts.
    """

    row: SessionRow
    after: int
    places: Sequence[int]
    orders: Sequence[int]


class Upcoming:
    """Reads the order of a replay in large portions, and the rewards themselves by their orders.

    To find the next rewards of merged sessions, a store must sort all that remain. So the sorted
    places are kept until the session changes, and a replay takes time in proportion to its length.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._portions: dict[int, _Portion] = {}

    def next(self, row: SessionRow, after: int, n: int) -> list[RewardedDecision]:
        """Return up to `n` rewards of a later place than `after`; none where there are no more."""
        portion = self._portions.get(row.key)
        if portion is None or portion.row != row or after < portion.after:
            portion = self._read(row, after, (after, LAST))
        start = bisect_right(portion.places, after)
        while True:
            orders = portion.orders[start : start + n]
            rows = self._store.counted(orders) if orders else []
            if rows:
                return rows
            start += len(orders)
            if start == len(portion.orders):
                if start < _PORTION:
                    return []
                portion = self._read(row, after, (portion.places[-1], portion.orders[-1]))
                start = 0

    def _read(self, row: SessionRow, after: int, last: tuple[int, int]) -> _Portion:
        pairs = self._store.replay_order(
            row.key, merged=row.members > 0, after=last, limit=_PORTION
        )
        portion = _Portion(row, after, [place for place, _ in pairs], [one for _, one in pairs])
        self._portions[row.key] = portion
        return portion

    def forget(self, key: int) -> None:
        """Forget the order of a session's replay."""
        self._portions.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._portions.clear()
