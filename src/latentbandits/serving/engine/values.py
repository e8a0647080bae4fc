"""Values that the engine takes and gives: plain data, which HTTP checks and encodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from latentbandits.serving.errors import Refused

UserValue: TypeAlias = str | float | bool | None
FeatureValue: TypeAlias = str | float | bool | list[float] | None
RewardAnswer = Literal["applied", "duplicate", "late"]
Answer = TypeVar("Answer")


class DecisionRequest(msgspec.Struct, frozen=True):
    """One decision to be made for a session.

    `actions` names the eligible actions; `features` has one row for each: numbers, or values by
    name where the model was learned with names; one row by name is shared by all actions. Without
    either, all actions of the model are eligible but those that `exclude` names. The same
    `request_id` again gives the same decision.
    `default` is played, marked as a fallback, where no model ever had one of the actions.
    `user_features` in a session's first request are the attributes of its user, by name; later
    requests may repeat them, but state no others. `user` says who asks, where the policy learns
    across users and the session is their population. `length` asks for a list of that many actions.
    """

    session: str
    actions: list[str] | None = None
    features: list[list[float] | dict[str, FeatureValue]] | dict[str, FeatureValue] | None = None
    request_id: str | None = None
    default: str | None = None
    exclude: list[str] | None = None
    user_features: dict[str, UserValue] | None = None
    user: str | None = None
    length: int | None = None


class Decided(msgspec.Struct, frozen=True):
    """A decision, committed to the store.

    Of a list, `actions` are in order, `indices` and `propensities` go with them, and `action`,
    `index` and `propensity` are those of the first. A propensity is the probability of an action
    given those above it: their product is the probability of the list. `click_model` says how
    users are taken to look at it.
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

    decision_id: str
    value: float | msgspec.UnsetType = msgspec.UNSET
    event_id: str | None = None
    clicked: str | msgspec.UnsetType | None = msgspec.UNSET
    values: dict[str, float] | None = None

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


class Forgotten(msgspec.Struct, frozen=True):
    """The number of sessions that were deleted."""

    session: str
    sessions: int


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

    `attributes` are those that the model was learned with (`fit --item-features`), by name;
    `vector` is what the model sees of an action: its features, or for arms its mean reward in
    every state. With neither, it is taken as the average action, with a wide variance.
    """

    id: str
    name: str | None = None
    attributes: dict[str, FeatureValue] | None = None
    vector: list[float] | None = None
