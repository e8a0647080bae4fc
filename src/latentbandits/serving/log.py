"""From rows of the store to entries of the log, and cursors into it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from latentbandits.serving.engine.library import ActionNames
from latentbandits.serving.engine.orders import decision_id, time_of
from latentbandits.serving.engine.sessions import floats
from latentbandits.serving.errors import Invalid
from latentbandits.serving.log_entries import LogEntry
from latentbandits.serving.records import DecisionRow, LoggedDecision

CURSOR = "^([0-7][0-9a-f]{15}([0-9a-f]{16})?)?$"
_decode_names = msgspec.json.Decoder(list[str]).decode


def cursor_order(cursor: str) -> int:
    """Return the order that a cursor stands for; Invalid where it is none."""
    if cursor == "":
        return -1
    if re.fullmatch(CURSOR, cursor) is None:
        raise Invalid(f"since must be the `next` of a log or a decision id; got {cursor[:50]!r}")
    return int(cursor[:16], 16)


def seconds(order: int) -> float:
    return time_of(order) / 1000


def event_fields(row: DecisionRow) -> dict[str, Any]:
    """Return the fields of `Event` for a decision."""
    return {
        "decision_id": decision_id(row.order, row.token),
        "round": row.round,
        "time": seconds(row.order),
        "model": row.model,
        "group": row.group,
        "policy": row.policy,
        "action": row.action,
        "index": row.index,
        "propensity": row.propensity,
        "propensity_kind": row.propensity_kind,
        "state_probabilities": floats(row.probabilities),
        "reward": row.reward,
        "reward_status": row.reward_status,
        "reward_time": None if row.reward_order is None else seconds(row.reward_order),
    }


def log_entry(logged: LoggedDecision, names: ActionNames) -> LogEntry:
    """Return a decision with its eligible actions by name and the features it was made from."""
    row = logged.row
    features = None
    if row.features is not None:
        features = np.frombuffer(row.features).reshape(row.n_actions, -1).tolist()
    if row.actions is not None:
        eligible = _decode_names(row.actions)
    else:
        known = names.of(row.model) if row.features is None else None
        eligible = [str(i) for i in range(row.n_actions)] if known is None else list(known)
    return LogEntry(
        **event_fields(row),
        session=logged.session_name,
        eligible=eligible,
        features=features,
        cursor=f"{row.order:016x}",
    )
