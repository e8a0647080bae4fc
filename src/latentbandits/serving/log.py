"""Convert rows of the store to entries of the log; cursors into it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from latentbandits.serving.engine.actions import decode_names
from latentbandits.serving.engine.ids import decision_id
from latentbandits.serving.engine.open_session import decode_user, floats
from latentbandits.serving.engine.served_models import ActionNames
from latentbandits.serving.errors import Invalid
from latentbandits.serving.log_entries import LogEntry, RewardEntry
from latentbandits.serving.records import FALLBACK, DecisionRow, LoggedEvent, RewardRow
from latentbandits.serving.stores.protocol import LogReader

CURSOR = "^([0-9a-f]{8}-[0-7][0-9a-f]{15})?$"


def cursor_of(store_id: bytes, position: int) -> str:
    """Return the cursor of a position: the id of the store and the position.

    >>> cursor_of(b"abcd", 17)
    '61626364-0000000000000011'
    """
    return f"{store_id.hex()}-{position:016x}"


def cursor_position(cursor: str, store_id: bytes | None, name: str = "since") -> int:
    """Return the position that a cursor stands for; Invalid where it is none of this store.

    >>> cursor_position("61626364-0000000000000011", b"abcd")
    17
    """
    if cursor == "":
        return 0
    if re.fullmatch(CURSOR, cursor) is None:
        raise Invalid(
            f"{name} must be a cursor of an earlier page or export, such as "
            f"{cursor_of(store_id or bytes(4), 17)}; got {cursor[:50]!r}"
        )
    if store_id is not None and not cursor.startswith(store_id.hex()):
        raise Invalid(
            f"the cursor {cursor} is of another store: this one's begin with {store_id.hex()}. "
            f"Leave `{name}` out to begin anew"
        )
    return int(cursor.rpartition("-")[2], 16)


def log_span(reader: LogReader, since: str, until: str, store_id: bytes) -> tuple[int, int]:
    """Return the positions after which and up to which the log is read.

    Without `until` it is read up to what is committed now: the first page decides, and the others
    take its end, so that together they are the log at one moment.
    """
    end = reader.end()
    begin = cursor_position(since, store_id)
    last = cursor_position(until, store_id, "until") if until else end
    return begin, last


def event_fields(row: DecisionRow, reward: RewardRow | None, *, is_new: bool) -> dict[str, Any]:
    """Return the fields of `Event` for a decision and the reward that counts.

    `is_new`: the model lacks the decision's action.
    """
    return {
        "decision_id": decision_id(row.order, row.token),
        "round": row.round,
        "time": row.time / 1000,
        "model": row.model,
        "group": row.group,
        "policy": row.policy,
        "action": row.action,
        "index": row.index,
        "propensity": row.propensity,
        "propensity_kind": row.propensity_kind,
        "state_probabilities": floats(row.probabilities),
        "reward": None if reward is None else reward.value,
        "reward_status": None if reward is None else reward.status,
        "reward_kind": None if reward is None else reward.kind,
        "reward_time": None if reward is None else reward.time / 1000,
        "fallback": is_new or row.policy == FALLBACK,
    }


def log_entry(event: LoggedEvent, names: ActionNames, store_id: bytes) -> LogEntry:
    """Return a decision with its eligible actions by name and the features it was made from."""
    row = event.decision
    features = None
    if row.features is not None:
        features = np.frombuffer(row.features).reshape(row.n_actions, -1).tolist()
    named = decode_names(row.actions)
    if named.actions is not None:
        eligible = named.actions
    else:
        known = names.offered(row.model) if row.features is None else None
        eligible = [str(i) for i in range(row.n_actions)] if known is None else list(known)
        if named.exclude is not None:
            gone = set(named.exclude)
            eligible = [name for name in eligible if name not in gone]
    return LogEntry(
        **event_fields(row, event.current, is_new=names.lacks(row)),
        session=event.session_name,
        eligible=eligible,
        features=features,
        cursor=cursor_of(store_id, event.position),
        user_features=decode_user(event.user_features),
        user=named.user,
    )


def reward_entry(event: LoggedEvent, store_id: bytes) -> RewardEntry:
    """Return a reward event with the decision and the session that it belongs to."""
    row, reward = event.decision, event.reward
    assert reward is not None
    return RewardEntry(
        decision_id=decision_id(row.order, row.token),
        session=event.session_name,
        value=reward.value,
        kind=reward.kind,
        status=reward.status,
        time=reward.time / 1000,
        who=reward.who,
        cursor=cursor_of(store_id, event.position),
    )
