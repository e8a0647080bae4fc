"""Restoring beliefs: from a snapshot, or by a replay of the session's log.

Snapshots shorten a replay and can be thrown away at any time: each names its model, its policy and
the revision of its session. A session is replayed reward by reward, never from sums: sums would
give floats that differ from those that were served. A long replay never holds up the writer. Its
operation raises `Rebuilding` and is rolled back, other requests go on, and the session is replayed
in slices, one reward at a time while a request waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from latentbandits.beliefs.encoding import BeliefError, decode, encode
from latentbandits.serving.engine.models import Library, ServedModel
from latentbandits.serving.engine.open_session import (
    Live,
    first_belief,
    never,
    replay,
    state_probabilities,
    too_short,
)
from latentbandits.serving.errors import Damaged
from latentbandits.serving.records import RewardedDecision, SessionRow, SnapshotRow
from latentbandits.serving.stores.protocol import LAST, Store

SLICE = 64  # most rewards that are replayed before a request is answered
_STEP = 8  # rewards that are read at a time in a long replay
_PORTION = 10_000  # places that are read at a time


class Rebuilding(Exception):  # noqa: N818 - the operation is to be tried again, later
    """A session's replay is long: do it with `Restoring.rebuild`, a little at a time."""

    def __init__(self, key: int) -> None:
        super().__init__(f"session {key} is being rebuilt from its log")
        self.key = key


class Restoring:
    """Restores the beliefs of sessions, which `keep` keeps in memory.

    A belief is restored from the session's snapshot and the rewards that came after it. Where
    `deferring` is set, a replay of more than SLICE rewards raises Rebuilding instead.
    """

    deferring = False

    def __init__(self, store: Store, library: Library, keep: Callable[[Live], None]) -> None:
        self._store = store
        self._library = library
        self._keep = keep
        self._partial: dict[int, Live] = {}  # sessions whose replay is under way
        # The rows of sessions that it goes on with, and the rewards that it learns next.
        self._upcoming: dict[int, tuple[SessionRow, Iterator[RewardedDecision]]] = {}
        self._short: dict[int, int] = {}  # last order of sessions whose log lacks rewards

    def forget(self, key: int) -> None:
        """Give up the replay of a session, if one is under way."""
        self._partial.pop(key, None)
        self._upcoming.pop(key, None)

    def clear(self) -> None:
        """Give up all replays that are under way."""
        self._partial.clear()
        self._upcoming.clear()

    def restore(self, row: SessionRow, cached: Live | None) -> Live:
        """Return the session of `row` with its belief, and keep it; `cached` may be outdated."""
        start = self._nearest(row, cached)
        if start.learned == row.rewards:
            live = start if start.row is row else start._replace(row=row)
            self._keep(live)
            return live
        if self.deferring and row.rewards - start.learned > SLICE:
            if self._short.get(row.key) == row.last_order:
                raise too_short(row)
            self._partial[row.key] = start
            raise Rebuilding(row.key)
        rows = self._missing(row, start)
        if start.learned + len(rows) != row.rewards and start.learned:
            start = self.fresh(row)  # another process changed rewards that this belief holds
            rows = self._missing(row, start)
        grown = self._grown_for(start, rows)
        if grown is not None:
            start, rows = grown, self._missing(row, grown)
        live = self._learned(start._replace(row=row), rows)
        if live.learned != row.rewards:
            raise too_short(row)
        self._keep(live)
        return live

    def fresh(self, row: SessionRow, served: ServedModel | None = None) -> Live:
        """Return a session before its first reward, on its own model or on `served`."""
        served = served or self._library.served(row.model)
        group = served.of_group(row.group)
        belief = first_belief(group.policy, row)
        return Live(row, served, group, belief, state_probabilities(group.policy, belief)[0])

    def _nearest(self, row: SessionRow, cached: Live | None) -> Live:
        """Return the belief from which the least is to be replayed."""
        for candidate in (self._partial.get(row.key), cached):
            if candidate is not None and candidate.fits(row) and candidate.learned <= row.rewards:
                return candidate
        fresh = self.fresh(row)
        if row.rewards == 0 or not fresh.group.can_snapshot:
            return fresh
        snapshot = None
        try:
            snapshot = self._store.snapshot(row.key)
            if snapshot is None or not self._is_current(snapshot, row, fresh):
                return fresh
            return _decoded(fresh, snapshot)
        except (BeliefError, Damaged):
            grown = self._library.grown(row.model)
        if snapshot is not None and grown is not fresh.served:
            with suppress(BeliefError):
                return _decoded(self.fresh(row, grown), snapshot)._replace(played_new=True)
        return fresh  # the log can replace the snapshot

    def _is_current(self, snapshot: SnapshotRow, row: SessionRow, fresh: Live) -> bool:
        return (
            snapshot.model == row.model
            and snapshot.policy == fresh.group.text
            and snapshot.revision == row.revision
            and snapshot.learned <= row.rewards
        )

    def _missing(self, row: SessionRow, start: Live) -> list[RewardedDecision]:
        return self._store.applied(row.key, merged=row.members > 0, after=start.learned_to)

    def _learned(self, start: Live, rows: Sequence[RewardedDecision]) -> Live:
        """Return the session after these rewards."""
        belief = replay(start.group, start.served, rows, start.belief, start.learned_at)
        last = rows[-1].reward if rows else None
        learned_to = start.learned_to if last is None else last.applies_at
        states = state_probabilities(start.policy, belief)[0]
        played = [row.decision for row in rows]
        learned = start.learned + len(rows)
        return start.with_belief(start.row, belief, states, learned, learned_to, played)

    def _grown_for(self, live: Live, rows: Sequence[RewardedDecision]) -> Live | None:
        """Return the session's beginning on its grown model, where `rows` need that."""
        if not any(live.served.lacks(row.decision) for row in rows):
            return None
        grown = self._library.grown(live.row.model)
        same = len(grown.space.new) == len(live.served.space.new)
        return None if same else self.fresh(live.row, grown)

    def on(self, live: Live, served: ServedModel) -> Live:
        """Return a session with a belief of `served`, which is not the model that it has now."""
        row, fresh = live.row, self.fresh(live.row, served)
        if row.rewards == 0:
            return fresh
        if self.deferring and row.rewards > SLICE:
            self._partial[row.key] = fresh
            raise Rebuilding(row.key)
        rebuilt = self._learned(fresh, self._missing(row, fresh))
        if rebuilt.learned != row.rewards:
            raise too_short(row)
        self._keep(rebuilt)
        return rebuilt

    def rebuild(
        self,
        row: SessionRow,
        cached: Live | None,
        seconds: float,
        interrupted: Callable[[], bool] = never,
    ) -> bool:
        """Continue the replay of a session; return whether it is complete.

        It goes on for some seconds, or until it is `interrupted`, but learns one reward at least.
        """
        live = self._nearest(row, cached)._replace(row=row)
        end = time.perf_counter() + seconds
        before, rows = self._upcoming.pop(row.key, (None, iter(())))
        if before != row or row.key not in self._partial:
            rows = self._after(row, live.learned_to)
        for one in rows:
            grown = self._grown_for(live, [one])
            if grown is not None:
                self.forget(row.key)
                self._partial[row.key] = grown
                return False
            live = self._learned(live, [one])
            if interrupted() or time.perf_counter() > end:
                self._partial[row.key] = live
                self._upcoming[row.key] = row, rows
                return False
        self.forget(row.key)
        if live.learned == row.rewards:
            self._keep(live)
            self.snapshot(live)
        else:
            self._short[row.key] = row.last_order
        return True

    def _after(self, row: SessionRow, learned_to: int) -> Iterator[RewardedDecision]:
        """Yield a session's rewards after the place `learned_to`, in the order of replay.

        To find the next rewards of merged sessions, a store must sort all that remain. So the
        sorted places are read in large portions, and a replay takes time in proportion to its
        length.
        """
        last = learned_to, LAST
        while pairs := self._store.replay_order(
            row.key, merged=row.members > 0, after=last, limit=_PORTION
        ):
            orders = [order for _, order in pairs]
            for begin in range(0, len(orders), _STEP):
                yield from self._store.counted(orders[begin : begin + _STEP])
            last = pairs[-1]

    def snapshot(self, live: Live) -> None:
        """Keep the session's belief in the store, so that its log need not be replayed.

        The belief on a grown model is kept only if the session needs the grown model. A snapshot
        with a belief on the grown model therefore shows that the session needs that model.
        """
        canonical = live.played_new or not live.served.is_grown
        if canonical and live.group.can_snapshot and live.learned == live.row.rewards:
            self._store.put_snapshot(
                SnapshotRow(
                    session=live.row.key,
                    model=live.row.model,
                    policy=live.group.text,
                    revision=live.row.revision,
                    learned=live.learned,
                    learned_to=live.learned_to,
                    belief=encode(live.policy, live.belief),
                )
            )

    def merged(self, into: Live, other: Live, row: SessionRow) -> Live | None:
        """Return the belief of two sessions merged as `row`; None where it must be replayed.

        Where order does not matter, the rewards of the session that has fewer are added to the
        belief of the other. Where the draws of a decision depend on the order all the same, those
        rewards must be later than the others, as in a replay.
        """
        alike = into.served is other.served and into.group.text == other.group.text
        alike = alike and into.row.user_features == other.row.user_features
        if not alike or not into.group.order_free:
            return None
        small, large = sorted((into, other), key=lambda live: (live.learned, -live.learned_to))
        if small.learned > SLICE:
            return None
        rows = self._store.applied(small.row.key, merged=small.row.members > 0)
        later = all(row.reward and row.reward.applies_at > large.learned_to for row in rows)
        if not later and large.group.draws_depend_on_order:
            return None
        belief = replay(large.group, large.served, rows, large.belief)
        return large.with_belief(
            row,
            belief,
            state_probabilities(large.policy, belief)[0],
            into.learned + other.learned,
            max(into.learned_to, other.learned_to),
            [row.decision for row in rows],
        )


def _decoded(fresh: Live, snapshot: SnapshotRow) -> Live:
    belief = decode(fresh.policy, snapshot.belief)
    states = state_probabilities(fresh.policy, belief)[0]
    return fresh.with_belief(fresh.row, belief, states, snapshot.learned, snapshot.learned_to)
