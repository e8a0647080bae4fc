"""Convert rows of the store to entries of the log; cursors into it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from latentbandits.serving.engine.actions import decode_features, decode_names
from latentbandits.serving.engine.model_rows import ActionNames
from latentbandits.serving.engine.replay import decode_user
from latentbandits.serving.errors import Invalid, NotFound, UnknownCursor
from latentbandits.serving.records import (
    FALLBACK,
    DecisionRow,
    Event,
    LogEntry,
    LoggedEvent,
    RewardEntry,
    RewardRow,
    decision_id,
    floats,
    parse_decision_id,
    position_id,
    positions,
    rewards_by_position,
)
from latentbandits.serving.stores.protocol import SHARED, STORE_ID, LogReader, decode_shared

_SAME = sorted({*Event.__struct_fields__} & {*DecisionRow.__struct_fields__} - {"time"})
"""Fields of a decision that an event has as they are."""
CURSOR = "^([0-9a-f]{8}-[0-7][0-9a-f]{15})?$"


class Cursors(msgspec.Struct, frozen=True):
    """The cursors of a store: the id of the store, then a position.

    A copy of a store has the same log as the original up to some position, and another log after
    it. So the copy gets a new id. `shared` keeps, for the id of each earlier store in order, the
    position up to which both stores have the same log.
    """

    store_id: bytes
    shared: tuple[tuple[bytes, int], ...] = ()

    @classmethod
    def of(cls, reader: LogReader) -> Cursors:
        """Return the cursors of a store.

        A copy on which no service was started yet has the cursors of the original.
        """
        shared = decode_shared(reader.note(SHARED))
        own = reader.note(STORE_ID)
        if own is None:
            own = shared[-1][0] if shared else bytes(4)
        return cls(own, shared)

    def at(self, position: int) -> str:
        """Return the cursor of a position.

        >>> Cursors(b"abcd").at(17)
        '61626364-0000000000000011'
        """
        return f"{self.store_id.hex()}-{position:016x}"

    def position(self, cursor: str, end: int, name: str = "since") -> int:
        """Return the position of a cursor, 0 for an empty one; `end` is the last position.

        Raises:
            Invalid: the text is no cursor. UnknownCursor: the cursor belongs to another store, or
            to events that this store does not have.

        >>> Cursors(b"abcd").position("61626364-0000000000000011", end=20)
        17
        """
        if cursor == "":
            return 0
        if re.fullmatch(CURSOR, cursor) is None:
            raise Invalid(
                f"{name} must be a cursor of an earlier page or export, such as {self.at(17)}; "
                f"got {cursor[:50]!r}"
            )
        prefix, _, digits = cursor.partition("-")
        position = int(digits, 16)
        where = "from its beginning" if name == "since" else "to its end"
        remedy = f"Leave `{name}` out to read the log {where}"
        ends = {store_id.hex(): last for store_id, last in self.shared}
        if prefix == self.store_id.hex():
            if position > end:
                raise UnknownCursor(
                    f"the cursor {cursor} lies beyond the end of this store, {self.at(end)}: "
                    f"the store was replaced by an older copy. {remedy}"
                )
        elif prefix not in ends:
            raise UnknownCursor(
                f"the cursor {cursor} is of another store: this one's begin with "
                f"{self.store_id.hex()}. {remedy}"
            )
        elif position > ends[prefix]:
            raise UnknownCursor(
                f"the cursor {cursor} is of the store that this one was copied or restored from, "
                f"and was made after that, at {prefix}-{ends[prefix]:016x}: what came between is "
                f"not here. {remedy}"
            )
        return position

    def span(self, reader: LogReader, since: str, until: str) -> tuple[int, int]:
        """Return the positions after which and up to which the log is read.

        Without `until` the log is read up to the last commit. Pages after the first pass the first
        page's end, so that together they are the log at one moment.
        """
        end = reader.end()
        begin = self.position(since, end)
        return begin, self.position(until, end, "until") if until else end


def forgotten(reader: LogReader, decisions: Sequence[str]) -> list[str]:
    """Return the ids of decisions that the store no longer has or never had."""
    orders = {}
    for text in decisions:
        with suppress(NotFound):
            orders[text] = parse_decision_id(text)[0]
    there = reader.present(list(orders.values()))
    return [text for text in decisions if orders.get(text) not in there]


def event_fields(
    row: DecisionRow, reward: RewardRow | None, *, is_new: bool
) -> list[dict[str, Any]]:
    """Return the fields of `Event` for each position of a decision, with the reward in force.

    `is_new`: the model lacks an action of the decision.
    """
    list_id = decision_id(row.order, row.token)
    values = rewards_by_position(row, reward)
    events = []
    for position, (one, value) in enumerate(zip(positions(row), values, strict=True), 1):
        fields = {name: getattr(one, name) for name in _SAME} | {
            "decision_id": position_id(list_id, position),
            "time": row.time / 1000,
            "state_probabilities": floats(row.probabilities),
            "reward": value,
            "reward_status": None if reward is None else reward.status,
            "reward_kind": None if reward is None else reward.kind,
            "reward_time": None if reward is None else reward.time / 1000,
            "fallback": is_new or row.policy == FALLBACK,
        }
        if row.click_model is not None:
            fields |= {"list_id": list_id, "list_position": position}
        events.append(fields)
    return events


def log_entries(event: LoggedEvent, names: ActionNames, cursors: Cursors) -> list[LogEntry]:
    """Return each position of a decision, with its eligible actions by name and the features it
    was made from.
    """
    row = event.decision
    features = decode_features(row)
    named = decode_names(row.actions)
    if named.actions is not None:
        eligible = named.actions
    else:
        known = names.offered(row.model) if row.features is None else None
        eligible = [str(i) for i in range(row.n_actions)] if known is None else list(known)
        gone = set(named.exclude or ())
        eligible = [name for name in eligible if name not in gone]
    entries = []
    for fields in event_fields(row, event.current, is_new=names.lacks(row)):
        entry = LogEntry(
            **fields,
            session=event.session_name,
            eligible=eligible,
            features=features,
            cursor=cursors.at(event.position),
            user_features=decode_user(event.user_features),
            user=named.user,
        )
        entries.append(entry)
        eligible = [name for name in eligible if name != entry.action]
    return entries


def reward_entries(event: LoggedEvent, cursors: Cursors) -> list[RewardEntry]:
    """Return a reward event, for each position of its decision, with the session it belongs to."""
    row, reward = event.decision, event.reward
    assert reward is not None
    list_id = decision_id(row.order, row.token)
    return [
        RewardEntry(
            decision_id=position_id(list_id, position),
            session=event.session_name,
            value=value,
            kind=reward.kind,
            status=reward.status,
            time=reward.time / 1000,
            who=reward.who,
            cursor=cursors.at(event.position),
        )
        for position, value in enumerate(rewards_by_position(row, reward), 1)
    ]
