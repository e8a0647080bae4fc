"""What is said between a client and the service: the types that check it and document it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from latentbandits.serving.records import Arm, RewardStatus, SwapMode

MAX_BATCH = 100
MAX_ACTIONS = 1_000
MAX_FEATURES = 1_000
LARGEST = 1e9  # of a reward or a feature: far beyond any use, far below any overflow

Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]+(?![\x00-\x1f\x7f])$",
        description="Any text of 1 to 200 characters without control characters.",
    ),
]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Features = Annotated[
    list[Annotated[list[Number], Meta(min_length=1, max_length=MAX_FEATURES)]],
    Meta(min_length=1, max_length=MAX_ACTIONS),
]
Actions = Annotated[list[Id], Meta(min_length=1, max_length=MAX_ACTIONS)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body; a field that is not one of these is refused, for it is likely a slip."""


class DecideRequest(Request, frozen=True):
    """One decision to be made for a session.

    `actions` names the eligible ones; `features` brings one row for each. Without either, all
    actions of the model are eligible. The same `request_id` again is the same decision.
    `default` is played, marked as a fallback, where the model does not know an action.
    """

    session: Annotated[Id, Meta(examples=["ann"])]
    actions: Actions | None = None
    features: Features | None = None
    request_id: Id | None = None
    default: Id | None = None


class Decided(msgspec.Struct, frozen=True):
    """A decision, committed to the store."""

    decision_id: str
    action: str
    index: int
    propensity: float | None
    propensity_kind: str
    state_probabilities: list[float]
    model: str
    policy: str
    round: int
    fallback: bool = False


class RewardRequest(Request, frozen=True):
    """What a decision earned."""

    decision_id: Annotated[Id, Meta(examples=["343c1db679600000051193f670094651"])]
    value: Annotated[Number, Meta(examples=[0.5])]
    event_id: Id | None = None


class Rewarded(msgspec.Struct, frozen=True):
    """applied: the session has learned it. duplicate: it had been told before. late: it is in
    the log, but the session it belongs to has ended.
    """

    decision_id: str
    status: Literal["applied", "duplicate", "late"]


class MergeRequest(Request, frozen=True):
    """Two sessions are one user: all that `other` learned is added to `into`."""

    into: Id
    other: Id


class ActivateRequest(Request, frozen=True):
    """A model to use from now on: a folder below the service's models folder, or the id of a
    model that it has already. `force` takes one that cannot answer what its predecessor could.
    """

    path: Id | None = None
    model: Id | None = None
    mode: SwapMode | None = None
    force: bool = False


class Event(msgspec.Struct, frozen=True):
    """One round of a session, as the log has it."""

    decision_id: str
    round: int
    time: float
    model: str
    arm: Arm
    policy: str
    action: str
    index: int
    propensity: float | None
    propensity_kind: str
    state_probabilities: list[float]
    reward: float | None
    reward_status: RewardStatus | None
    reward_time: float | None


class SessionView(msgspec.Struct, frozen=True):
    """What the service knows of a session. `belief` holds the arrays of the policy's belief."""

    session: str
    arm: Arm
    policy: str
    model: str
    round: int
    rewards: int
    mean_reward: float | None
    started: float
    seen: float
    state_probabilities: list[float]
    belief: dict[str, Any]
    history: list[Event]


class Forgotten(msgspec.Struct, frozen=True):
    """How much was deleted."""

    session: str
    sessions: int


class ModelView(msgspec.Struct, frozen=True):
    """A model of the service; `actions` is None where they come with each request."""

    id: str
    name: str
    kind: str
    active: bool
    n_states: int
    n_actions: int | None
    n_features: int | None


class Swap(msgspec.Struct, frozen=True):
    """A change of the active model, and what became of the sessions under way."""

    time: float
    model: str
    mode: SwapMode


class Models(msgspec.Struct, frozen=True):
    """All models that the service has, and when each was activated."""

    active: str
    models: list[ModelView]
    swaps: list[Swap]


class LogEntry(Event, frozen=True):
    """One decision with all that evaluation and learning need."""

    session: str
    eligible: list[str]
    features: list[list[float]] | None
    cursor: str


class Log(msgspec.Struct, frozen=True):
    """Decisions in order; ask again with `since` = `next` for those that follow."""

    decisions: list[LogEntry]
    next: str


class Band(msgspec.Struct, frozen=True):
    """An estimate with its 95 % confidence band; no band before there are two sessions."""

    mean: float
    low: float | None
    high: float | None


class RoundView(msgspec.Struct, frozen=True):
    """A round over all sessions of an arm. `entropy` is in bits, of the states, on average."""

    round: int
    decisions: int
    entropy: float | None
    rewards: int
    reward: Band | None


class ArmView(msgspec.Struct, frozen=True):
    """The sessions that get the policy, or those that are held out.

    The band counts that rewards of one session are alike.
    """

    arm: Arm
    policy: str
    share: float
    sessions: int
    decisions: int
    rewards: int
    reward: Band | None
    rounds: list[RoundView]


class StateView(msgspec.Struct, frozen=True):
    """A latent state of the active model, and the share of open sessions believed to be in it."""

    state: int
    share: float
    prior: float


class SeriesView(msgspec.Struct, frozen=True):
    """What one policy on one model has done since the store began."""

    policy: str
    model: str
    decisions: int
    rewards: int
    mean_reward: float | None


class Second(msgspec.Struct, frozen=True):
    """What happened in one second of the last minutes, in this process."""

    time: int
    decisions: int
    rewards: int


class RatesView(msgspec.Struct, frozen=True):
    """Per second, over the last ten whole seconds, and second by second."""

    decisions_per_second: float
    rewards_per_second: float
    seconds: list[Second]


class RecentSession(msgspec.Struct, frozen=True):
    """An open session, the last seen first."""

    session: str
    arm: Arm
    model: str
    round: int
    rewards: int
    mean_reward: float | None
    seen: float
    state: int | None
    state_probability: float | None


class Overview(msgspec.Struct, frozen=True):
    """What the service is doing: totals since the store began, rates since the process did.

    `counts` holds sessions `started`, `expired`, `restarted`, `merged`, `deleted`, `open`,
    `decisions`, and rewards `applied`, `duplicate`, `late`. `difference` is the mean reward of
    the policy minus that of the holdout.
    """

    time: float
    store: str
    counts: dict[str, int]
    rates: RatesView
    arms: list[ArmView]
    difference: Band | None
    states: list[StateView]
    series: list[SeriesView]
    models: Models
    recent: list[RecentSession]


class CatalogueItem(msgspec.Struct, frozen=True):
    """An action: its id, what people call it, and the reward expected of it in each state."""

    action: str
    name: str
    expected: list[float]


class CatalogueView(msgspec.Struct, frozen=True):
    """What the active model knows of its actions, those first that tell its states apart best.

    `items` has at most 100; it is empty where actions come with each request. `favours` names,
    for each state, what it likes more than the others do; `low` and `high` are the least and the
    greatest reward that is expected of any action in any state.
    """

    model: str
    prior: list[float]
    low: float
    high: float
    favours: list[list[str]]
    items: list[CatalogueItem]


class Problem(msgspec.Struct, frozen=True):
    """Why a request was refused: a word for programs and a sentence for people."""

    code: str
    message: str


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every answer that is not a success.

    Nothing was done, unless `outcome` is "unknown" (status 504): the same request id tells.
    """

    error: Problem
    outcome: Literal["unknown"] | None = None


class Health(msgspec.Struct, frozen=True):
    """Whether the service is up, or ready."""

    status: str


_BATCH = Meta(min_length=1, max_length=MAX_BATCH)
DecideBody = DecideRequest | Annotated[list[DecideRequest], _BATCH]
RewardBody = RewardRequest | Annotated[list[RewardRequest], _BATCH]
