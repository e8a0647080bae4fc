"""The totals of a store: kept beside it, and computed from its log where they are damaged."""

from __future__ import annotations

import logging

import msgspec

from latentbandits.serving.engine.open_session import floats
from latentbandits.serving.engine.statistics import Statistics
from latentbandits.serving.errors import Damaged
from latentbandits.serving.stores.protocol import LogReader, Store

_log = logging.getLogger(__name__)
STATISTICS = "statistics/"
_PAGE = 1_000
encode_totals = msgspec.msgpack.Encoder().encode


def decode_totals(data: bytes) -> Statistics:
    """Return the totals that `encode_totals` wrote, or an earlier version as JSON."""
    if data.startswith(b"{"):
        return msgspec.json.decode(data, type=Statistics)
    return msgspec.msgpack.decode(data, type=Statistics)


def read_totals(store: Store) -> Statistics:
    """Return the totals of this process; those of its log where the note is damaged."""
    try:
        kept = store.note(f"{STATISTICS}{store.node}")
        if kept is not None:
            return decode_totals(kept)
    except (Damaged, msgspec.DecodeError) as error:
        _log.warning("the totals are damaged and computed anew from the log: %s", error)
    if store.shared:
        return Statistics()  # the log also holds the other processes' totals
    reader = store.log_reader()
    try:
        return computed_totals(store, reader)
    finally:
        reader.close()


def computed_totals(store: Store, reader: LogReader) -> Statistics:
    """Return the totals of all decisions, rewards and sessions that the store still has."""
    totals = Statistics()
    begun: set[int] = set()
    sums: dict[int, tuple[float, int]] = {}
    position, until = 0, reader.end()
    while page := reader.read(position, _PAGE, until=until):
        position = page[-1].position
        for event in page:
            row, reward = event.decision, event.reward
            if reward is None:
                if row.session not in begun:
                    begun.add(row.session)
                    totals.count("started")
                probabilities = floats(row.probabilities)
                totals.decided(row.group, row.policy, row.model, row.round, probabilities)
            elif reward.status == "late":
                totals.count("late")
            elif event.current is not None and event.current.order == reward.order:
                before = sums.get(row.session, (0.0, 0))
                totals.rewarded(row.group, row.policy, row.model, row.round, reward.value, before)
                sums[row.session] = (before[0] + reward.value, before[1] + 1)
    for key in begun:
        session = store.session(key)
        if session is None:
            continue
        if session.open:
            totals.move_share(session.model, [], floats(session.probabilities))
        else:
            totals.count("expired" if session.merged_into is None else "merged")
    return totals
