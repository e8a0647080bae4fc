"""Entries of the decision log as programs outside read them."""

from __future__ import annotations

import msgspec

from latentbandits.serving.records import RewardStatus


class Event(msgspec.Struct, frozen=True):
    """One round of a session, as the log has it."""

    decision_id: str
    round: int
    time: float
    model: str
    group: str
    policy: str
    action: str
    index: int
    propensity: float | None
    propensity_kind: str
    state_probabilities: list[float]
    reward: float | None
    reward_status: RewardStatus | None
    reward_time: float | None


class LogEntry(Event, frozen=True):
    """One decision with all that evaluation and learning need."""

    session: str
    eligible: list[str]
    features: list[list[float]] | None
    cursor: str
