"""Names of the columns of a log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Columns:
    """Names of a log's columns; the defaults are those that `latentbandits export` writes.

    Only `session`, `action` and `reward` must be there. Without `round`, a session's rows are in
    the order of the table. Several rows of one `decision` count once, that of the largest
    `cursor` or else the last: an export writes a decision again when its reward comes late. With
    `time` and `reward_time` a candidate learns from a reward only after it came.
    """

    session: str = "session"
    round: str = "round"
    action: str = "action"
    reward: str = "reward"
    propensity: str = "propensity"
    eligible: str = "eligible"
    features: str = "features"
    propensity_kind: str = "propensity_kind"
    decision: str = "decision_id"
    cursor: str = "cursor"
    time: str = "time"
    reward_time: str = "reward_time"


OPTIONAL = (
    "round",
    "propensity",
    "eligible",
    "features",
    "propensity_kind",
    "decision",
    "cursor",
    "time",
    "reward_time",
)
