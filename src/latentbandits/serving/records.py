"""The rows that stores keep: frozen values, the same for every store."""

from __future__ import annotations

from typing import Literal

import msgspec

SwapMode = Literal["pinned", "migrated", "restarted"]
RewardStatus = Literal["applied", "late"]


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """One user or episode. What it believes is not here: it is the replay of its decisions."""

    key: int  # an order: when it began
    name: str
    group: str
    model: str
    activation: int  # the last activation that was carried out on it
    seen: int  # milliseconds
    rounds: int  # decisions so far, with those of sessions merged into it
    rewards: int
    reward_sum: float
    last_order: int  # of the last thing that happened to it
    probabilities: bytes  # of the states at its last decision, float64
    open: bool = True  # False: expired, restarted or merged; the name may begin anew
    merged_into: int | None = None
    merged_at: int | None = None


class DecisionRow(msgspec.Struct, frozen=True, gc=False):
    """One decision, all that is needed to make it again, and its reward once there is one."""

    order: int
    token: int
    session: int  # SessionRow.key
    round: int
    model: str
    group: str
    policy: str
    action: str
    index: int
    n_actions: int
    actions: bytes | None  # JSON list of the ids that were eligible; None: all, or unnamed rows
    features: bytes | None  # float64 (n_actions, n_features) where the caller brought them
    state: int
    propensity: float | None
    propensity_kind: str
    probabilities: bytes  # of the states, float64
    request_id: str | None = None
    fingerprint: bytes | None = None  # of the request that request_id stands for
    reward: float | None = None
    reward_order: int | None = None
    reward_status: RewardStatus | None = None
    event_id: str | None = None


class ModelRow(msgspec.Struct, frozen=True):
    """A model artefact as it was given: a store needs no other file to go on after a restart."""

    id: str
    name: str
    files: bytes  # msgpack {file name: content}


class ActivationRow(msgspec.Struct, frozen=True):
    """From this order on, new sessions use this model; what becomes of the others is its mode."""

    order: int
    model: str
    mode: SwapMode


class LoggedDecision(msgspec.Struct, frozen=True):
    """A decision with the name its session has in the log."""

    session_name: str
    row: DecisionRow
