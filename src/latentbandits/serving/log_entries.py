"""Entries of the decision log as programs outside read them."""

from __future__ import annotations

import msgspec

from latentbandits.serving.records import RewardKind, RewardStatus


class Event(msgspec.Struct, frozen=True):
    """One round of a session, as the log has it, with the reward that counts now."""

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
    reward_kind: RewardKind | None
    reward_time: float | None
    fallback: bool  # the request's default, or an action that the model lacks


class LogEntry(Event, frozen=True):
    """One decision with all that evaluation and learning need.

    `user` is the one whom the request named: the session is then a population.
    """

    session: str
    eligible: list[str]
    features: list[list[float]] | None
    cursor: str
    user_features: dict[str, str | float | bool | None] | None = None
    user: str | None = None


class RewardEntry(msgspec.Struct, frozen=True):
    """One reward event: a first reward, a correction, or a default."""

    decision_id: str
    session: str
    value: float
    kind: RewardKind
    status: RewardStatus
    time: float
    who: str
    cursor: str
