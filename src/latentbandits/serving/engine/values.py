"""Values that the engine takes and gives: plain data, which HTTP checks and encodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from latentbandits.serving.errors import Refused

RewardAnswer = Literal["applied", "duplicate", "late"]
Answer = TypeVar("Answer")
MAX_LENGTH = 100  # actions of a list
_MOST_ACTIONS = 1_000
_MOST_FEATURES = 1_000
_MOST_ATTRIBUTES = 100
_LARGEST = 1e9  # bound of a reward or feature, far below overflow

# The limits hold for messages, which are checked when they are decoded.
Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]+(?![\x00-\x1f\x7f])$",
        description="Any text of 1 to 200 characters without control characters.",
    ),
]
Number = Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST)]
Text = Annotated[str, Meta(max_length=200)]
Numbers = Annotated[list[Number], Meta(min_length=1, max_length=_MOST_FEATURES)]
NamedFeatures = Annotated[
    dict[Id, Text | Number | bool | Numbers | None], Meta(max_length=_MOST_ATTRIBUTES)
]
Features = (
    Annotated[list[Numbers | NamedFeatures], Meta(min_length=1, max_length=_MOST_ACTIONS)]
    | NamedFeatures
)
UserFeatures = Annotated[dict[Id, Text | Number | bool | None], Meta(max_length=_MOST_ATTRIBUTES)]
Length = Annotated[int, Meta(ge=1, le=MAX_LENGTH)]
Actions = Annotated[list[Id], Meta(min_length=1, max_length=_MOST_ACTIONS)]


class DecisionRequest(msgspec.Struct, frozen=True):
    """One decision to be made for a session.

    `actions` names the eligible actions; `features` has one row for each: numbers, or values by
    name where the model was learned with names; one row by name is shared by all actions. Without
    either, all actions of the model but the ones in `exclude` are eligible. The same `request_id`
    again gives the same decision. `default` is played, marked as a fallback, where no model ever
    had one of the actions. `user_features` in a session's first request are the attributes of its
    user, by name; later requests may repeat them, but state no others. `user` says who asks, where
    the policy learns across users and the session is their population. `length` asks for a list of
    that many actions.
    """

    session: Annotated[Id, Meta(examples=["ann"])]
    actions: Actions | None = None
    features: Features | None = None
    request_id: Id | None = None
    default: Id | None = None
    exclude: Actions | None = None
    user_features: UserFeatures | None = None
    user: Id | None = None
    length: Length | None = None


class Decided(msgspec.Struct, frozen=True):
    """A decision, committed to the store.

    Of a list, `actions` are in order, with their `indices` and `propensities`; `action`, `index`
    and `propensity` belong to the first one. A propensity is the probability of an action given
    those above it: their product is the probability of the list. `click_model` is the assumption of
    how users look at the list.
    """

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
    reward_token: str | msgspec.UnsetType = msgspec.UNSET  # where the request asks for one
    actions: list[str] | msgspec.UnsetType = msgspec.UNSET  # of a list, like those that follow
    indices: list[int] | msgspec.UnsetType = msgspec.UNSET
    propensities: list[float | None] | msgspec.UnsetType = msgspec.UNSET
    click_model: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def shown(self) -> list[str]:
        """The actions from the top; the one action, where no list was asked for."""
        return [self.action] if isinstance(self.actions, msgspec.UnsetType) else self.actions


class RewardReport(msgspec.Struct, frozen=True):
    """The reward that a decision earned.

    A list has no `value`, but the action that was `clicked` (None: none was) where its click model
    is a cascade, or `values` of some or all of its actions.
    """

    decision_id: Annotated[Id, Meta(examples=["343c1db679600000051193f670094651"])]
    value: Annotated[Number, Meta(examples=[0.5])] | msgspec.UnsetType = msgspec.UNSET
    event_id: Id | None = None
    clicked: Id | msgspec.UnsetType | None = msgspec.UNSET
    values: Annotated[dict[Id, Number], Meta(min_length=1, max_length=_MOST_ACTIONS)] | None = None

    def told(self) -> str:
        """Return the reward as text, for the audit log."""
        if self.clicked is not msgspec.UNSET:
            return f"a click on {self.clicked!r}"
        return repr(self.value if self.values is None else self.values)


class Rewarded(msgspec.Struct, frozen=True):
    """applied: the session has learned it. duplicate: it had been reported before. late: it is in
    the log, but its session has ended.
    """

    decision_id: str
    status: RewardAnswer


@dataclass(slots=True, eq=False, kw_only=True)
class Pending(Generic[Answer]):
    """A request that waits for its batch; `answer` is there once the batch is settled."""

    answer: Answer | Refused | None = None

    def result(self) -> Answer:
        """Return the answer, or raise the refusal."""
        assert self.answer is not None
        if isinstance(self.answer, Refused):
            raise self.answer
        return self.answer


class Second(msgspec.Struct, frozen=True):
    """Decisions and rewards in one second of the last minutes, in this process."""

    time: int
    decisions: int
    rewards: int


class RatesView(msgspec.Struct, frozen=True):
    """Rates per second over the last ten whole seconds, and the counts of each second."""

    decisions_per_second: float
    rewards_per_second: float
    seconds: list[Second]


class NewAction(msgspec.Struct, frozen=True):
    """An action to add.

    `attributes` are values by name of the attributes that the model was learned with (`fit
    --item-features`); `vector` holds the action's features, or for arms its mean reward in every
    state. An action with neither is treated as the average action, with a wide variance.
    """

    id: Annotated[Id, Meta(examples=["green"])]
    name: Id | None = None
    attributes: NamedFeatures | None = None
    vector: Numbers | None = None
