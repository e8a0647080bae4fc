"""The rows that stores keep, and the entries of the log that programs outside read from them.

Rows are frozen values, the same for every store.

All `order` numbers, and the keys of sessions, come from one sequence of the store: within a
session they grow, whatever the clocks say. Times are milliseconds since 1970, for people to read.
"""

from __future__ import annotations

import re
from array import array
from typing import Literal

import msgspec

from latentbandits.serving.errors import NotFound

SwapMode = Literal["pinned", "migrated", "restarted"]
RequestedMode = Literal["pinned", "migrated", "restarted", "trial"]
ActivationMode = Literal["pinned", "migrated", "restarted", "extended", "trial"]
"""How an activation treats open sessions. "extended": the model is that of the activation before
it with another catalogue, and takes over the sessions of that model alone. "trial": the active
model stays, and until the next activation half of the new sessions begin with this one."""
RewardStatus = Literal["applied", "late"]
RewardKind = Literal["reward", "correction", "default"]
FALLBACK = "default"
"""The policy of a decision that the caller's default made."""
VISITORS = "visitors/"
"""Notes with this prefix and a session's key hold the rows of its users; they go with it."""


_DECISION_ID = re.compile(r"([0-9a-fA-F]{16})([0-9a-fA-F]{16})(\.[0-9]{3})?")


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """One user or episode, without its belief, which is computed by replay of its rewards."""

    key: int  # the order of its first event
    name: str
    group: str
    model: str
    activation: int  # the last activation that was applied to it
    started: int  # time
    seen: int  # time
    rounds: int = 0  # decisions so far, including sessions merged into it
    rewards: int = 0  # decisions with an applied reward
    reward_sum: float = 0.0
    last_order: int = 0  # the order of its latest decision, reward or merge
    probabilities: bytes = b""  # float64 state probabilities at its last decision
    open: bool = True  # False: expired, restarted or merged; the name may start a new session
    merged_into: int | None = None
    merged_at: int | None = None
    members: int = 0  # sessions that were merged into it
    revision: int = 0  # number of corrections and merges: a belief of another revision is stale
    user_features: bytes | None = None  # JSON of the user's attributes at the start of the session


class DecisionRow(msgspec.Struct, frozen=True, gc=False):
    """One decision and all that is needed to make it again; never changed."""

    order: int
    token: int
    session: int  # SessionRow.key
    round: int
    time: int
    model: str
    group: str
    policy: str
    action: str
    index: int
    n_actions: int
    actions: bytes | None  # JSON list of the eligible ids; None: all, or unnamed rows
    features: bytes | None  # float64 (n_actions, n_features), if the request sent them
    state: int
    propensity: float | None
    propensity_kind: str
    probabilities: bytes  # float64 state probabilities
    request_id: str | None = None
    fingerprint: bytes | None = None  # a hash of the request that had this request_id
    click_model: str | None = None  # of a list, whose first action is `action`; None: no list
    below: bytes | None = None  # JSON of the `Shown` positions below the first one of a list


class Shown(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The action at one position of a list; the propensity is given the actions above it."""

    action: str
    index: int
    state: int
    propensity: float | None
    propensity_kind: str


class RewardRow(msgspec.Struct, frozen=True, gc=False):
    """One reward event of a decision; never changed. The latest one of a decision counts."""

    order: int
    decision: int  # DecisionRow.order
    session: int
    applies_at: int  # the order of the decision's first reward: its place in the replay
    value: float
    kind: RewardKind
    status: RewardStatus
    time: int
    event_id: str | None = None
    who: str = ""  # the name of the API key that reported it
    token: bytes | None = None  # digest of the reward token that it was reported with: used once
    observed: bytes | None = None  # JSON of the rewards of a list by position; null: not observed


class RewardedDecision(msgspec.Struct, frozen=True, gc=False):
    """A decision with the reward that counts, if there is any."""

    decision: DecisionRow
    reward: RewardRow | None


class ModelRow(msgspec.Struct, frozen=True):
    """A complete model artefact: a store needs no other file after a restart."""

    id: str
    name: str
    files: bytes  # msgpack {file name: content}
    summary: bytes = b""  # JSON of ModelSummary; empty for models of version 0.1.0
    base: str | None = None
    """A model that has most of these files' content: a store may keep the difference from it."""


class ActivationRow(msgspec.Struct, frozen=True):
    """From this order on, new sessions use this model; `mode` decides about the others."""

    order: int
    model: str
    mode: ActivationMode
    time: int
    who: str = ""
    click_model: str | None = None  # of lists; None: what the model's fit says


class SnapshotRow(msgspec.Struct, frozen=True):
    """The belief of a session after its first `learned` rewards, under a model and a policy."""

    session: int
    model: str
    policy: str
    revision: int  # of the session
    learned: int
    learned_to: int  # `applies_at` of the last learned reward
    belief: bytes


class AuditRow(msgspec.Struct, frozen=True):
    """An act of an administrator, or a change of history: activation, merge, correction, ..."""

    order: int
    time: int
    who: str
    action: str
    detail: str


class NoteRow(msgspec.Struct, frozen=True):
    """A small value kept under a name."""

    name: str
    value: bytes


class LoggedEvent(msgspec.Struct, frozen=True):
    """A decision or a reward, at its position in the order of commits.

    `decided_at` is the position of the decision itself, `current` the reward that counts now.
    """

    position: int
    decided_at: int
    session_name: str
    decision: DecisionRow
    reward: RewardRow | None  # the reward of a reward event; None for a decision event
    current: RewardRow | None
    user_features: bytes | None = None  # of the session, as JSON

    @property
    def counts(self) -> bool:
        """Whether it is a reward, and the one that counts now."""
        reward, current = self.reward, self.current
        return reward is not None and current is not None and current.order == reward.order


class Event(msgspec.Struct, frozen=True):
    """One round of a session in the log, with the reward in force.

    Each position of a list is an event: `list_id` is the `decision_id` of the list.
    """

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
    list_id: str | msgspec.UnsetType = msgspec.UNSET  # of a position of a list
    list_position: int | msgspec.UnsetType = msgspec.UNSET  # from 1


class LogEntry(Event, frozen=True, kw_only=True):
    """One decision with all that evaluation and learning need; of a list, one of its positions.

    `eligible` has none of the actions above a position, and `reward` is null where nothing was
    observed there. `user` is the user whom the request named; the session is then a population.
    """

    session: str
    eligible: list[str]
    features: list[list[float]] | None
    cursor: str
    user_features: dict[str, str | float | bool | None] | None = None
    user: str | None = None


class RewardEntry(msgspec.Struct, frozen=True):
    """One reward event: a first reward, a correction, or a default.

    The event of a list has an entry for each of its positions; `value` is null where nothing was
    observed.
    """

    decision_id: str
    session: str
    value: float | None
    kind: RewardKind
    status: RewardStatus
    time: float
    who: str
    cursor: str


def floats(data: bytes) -> list[float]:
    """Return the numbers that `as_bytes` turned into these bytes."""
    return array("d", data).tolist()


def as_bytes(values: list[float]) -> bytes:
    """Return numbers as float64 bytes."""
    return array("d", values).tobytes()


_decode_shown = msgspec.json.Decoder(list[Shown]).decode
decode_observed = msgspec.json.Decoder(list[float | None]).decode


def positions(row: DecisionRow) -> list[DecisionRow]:
    """Return the decision at each position of a list, from the top; else the row itself."""
    below = () if row.below is None else _decode_shown(row.below)
    return [row, *(msgspec.structs.replace(row, **msgspec.structs.asdict(one)) for one in below)]


def shown_actions(row: DecisionRow) -> list[str]:
    """Return the actions of a list, from the top; for a decision without a list, the one action."""
    if row.below is None:
        return [row.action]
    return [row.action, *(one.action for one in _decode_shown(row.below))]


def rewards_by_position(row: DecisionRow, reward: RewardRow | None) -> list[float | None]:
    """Return the reward of each position of a decision; None: not observed."""
    if reward is None:
        return [None] * len(shown_actions(row))
    return [reward.value] if reward.observed is None else decode_observed(reward.observed)


def decision_id(order: int, token: int) -> str:
    """Return the public id of a decision: 32 hexadecimal digits.

    >>> decision_id(1, 2)
    '00000000000000010000000000000002'
    """
    return f"{order:016x}{token:016x}"


def position_id(list_id: str, position: int) -> str:
    """Return the id of a position of a list, from 1; the first one has the id of the list.

    >>> position_id("00000000000000010000000000000002", 3)
    '00000000000000010000000000000002.003'
    """
    return list_id if position == 1 else f"{list_id}.{position:03d}"


def parse_decision_id(text: str) -> tuple[int, int]:
    """Return the order and token in an id; NotFound if no decision can have this id.

    The id of a position of a list names the list.
    """
    digits = _DECISION_ID.fullmatch(text)
    if digits is not None:
        order, token = int(digits[1], 16), int(digits[2], 16)
        if order < 1 << 63 and token < 1 << 63:
            return order, token
    raise NotFound("decision", text)
