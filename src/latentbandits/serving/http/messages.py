"""Messages between clients and the service: these types check requests and document answers."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from latentbandits.serving.engine.values import (
    Decided,
    DecisionRequest,
    Id,
    NewAction,
    RatesView,
    Rewarded,
    RewardReport,
    Second,
)
from latentbandits.serving.records import (
    ActivationMode,
    Event,
    LogEntry,
    RequestedMode,
    RewardEntry,
)

__all__ = [  # answers that are values of the engine
    "Decided", "Event", "LogEntry", "RatesView", "RewardEntry", "Rewarded", "Second",
]  # fmt: skip

MAX_BATCH = 100
MAX_PAGE = 1_000  # events or decisions
MAX_PICKS = 50
RawHeaders: TypeAlias = dict[bytes, bytes]
Answered: TypeAlias = tuple[int, bytes, RawHeaders]
"""An answer as it is sent: status, body and further headers."""
encode_json = msgspec.json.Encoder().encode


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body; a field that is not one of these is refused, for it is likely a slip."""


class DecideRequest(DecisionRequest, frozen=True, forbid_unknown_fields=True):
    """One decision to be made for a session.

    `actions` names the eligible ones; `features` brings one row for each: numbers, or values by
    name where the model was learned with names; one row by name is shared by all actions. Without
    either, all actions of the model but the ones in `exclude` are eligible. The same `request_id`
    again is the same decision. An action that the model lacks, but an earlier one had, is a new
    action, marked as a fallback where it is chosen. `default` is played, so marked, where no model
    ever had one of the actions. `user_features` in a session's first request are the attributes of
    its user, by name: they hold for the whole session, and a later request that states others is
    refused (409). `user` says who asks, where the policy learns across users (HierTS) and the
    session is their population. `length` asks for an ordered list of that many different actions;
    the answer has `actions`. `reward_token` asks for a token that allows to report this decision's
    reward without a key.
    """

    reward_token: bool = False


class RewardRequest(RewardReport, frozen=True, forbid_unknown_fields=True):
    """The reward that a decision earned: `value`.

    For a list whose click model is a cascade, it is the action that was `clicked` (null: the list
    was seen and nothing clicked); for other lists, the `values` of some or all of the actions.
    `token` is the decision's `reward_token`: it takes the place of a key, and the body may then be
    sent as text/plain, which browsers do without asking first.
    """

    token: Annotated[str, Meta(max_length=100)] | None = None


class MergeRequest(Request, frozen=True):
    """Two sessions are one user: all that `other` learned is added to `into`."""

    into: Id
    other: Id


class ActivateRequest(Request, frozen=True):
    """A model to use from now on: a folder below the service's models folder, or the id of a
    model that it has already. `force` accepts a model that cannot answer all requests that its
    predecessor could. The same `request_id` again activates nothing anew. With `if_active`, the id
    of a model, nothing is activated where another model is active by now. The mode "trial" leaves
    the active model active: until the next activation, half of the new sessions begin with this
    model. `click_model` says how users look at lists: each, cascade, positions(1, 0.6, 0.4), or
    auto for what the model's fit says; without it, the service's setting.
    """

    path: Id | None = None
    model: Id | None = None
    mode: RequestedMode | None = None
    force: bool = False
    request_id: Id | None = None
    if_active: Id | None = None
    click_model: Id | None = None


class NewActionRequest(NewAction, frozen=True, forbid_unknown_fields=True):
    """An action to add to the catalogue of the active model.

    `attributes` are values by name of the attributes that the model was learned with (`fit
    --item-features`); `vector` holds the action's features, or for arms its mean reward in every
    state. An action with neither is treated as the average action, with a wide variance.
    """


class CatalogueChange(msgspec.Struct, frozen=True):
    """The active model after a change of its catalogue, and how many actions it can choose."""

    model: str
    actions: list[str]
    n_actions: int


class SessionView(msgspec.Struct, frozen=True):
    """A session as the service knows it.

    `belief` holds the arrays of the policy's belief; of arrays of more than 20,000 numbers, only
    the shape. `history` has the last 1,000 rounds, fewer where their features are large, and 100 in
    the answer to a merge.
    """

    session: str
    group: str
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
    user_features: dict[str, Any] | None = None


class Forgotten(msgspec.Struct, frozen=True):
    """The number of sessions that were deleted."""

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
    mode: ActivationMode


class Models(msgspec.Struct, frozen=True):
    """All models of the service, and when each was activated; `trial` is the model on trial."""

    active: str
    models: list[ModelView]
    swaps: list[Swap]
    trial: str | None = None


class ActiveModel(msgspec.Struct, frozen=True):
    """The active model whole, as `latentbandits relearn` compares candidates with it.

    `files` has the files of the model's artefact: msgpack, a map of names to contents.
    `judging_salt` chooses the sessions that no fit sees; a caller who knows it could choose ids of
    such sessions.
    """

    id: str
    name: str
    files: bytes
    judging_salt: bytes


class ForgottenRequest(Request, frozen=True):
    """Ids of decisions; the answer names the ones that were forgotten."""

    decisions: Annotated[list[Id], Meta(min_length=1, max_length=MAX_PAGE)]


class ForgottenDecisions(msgspec.Struct, frozen=True):
    """The decisions that the store no longer has: copies of the log must drop them too."""

    forgotten: list[str]


class Log(msgspec.Struct, frozen=True):
    """Events in the order of their commits: new decisions, and rewards of any decisions.

    Ask again with `since` = `next` for the events that follow: a reader that does so sees every
    decision and every reward (late ones, corrections and defaults too) exactly once. `cursor`
    orders the entries of both lists. A page ends at `end`, the last commit when it was read, and
    shows a decision with the reward that counted there. With `until` = the `end` of the first page,
    all pages are the log at that one moment; `next` is `since` where nothing follows.
    """

    decisions: list[LogEntry]
    rewards: list[RewardEntry]
    next: str
    end: str = ""  # empty: a service of an earlier version answered


class Band(msgspec.Struct, frozen=True):
    """An estimate with its 95 % interval, which is valid at every look (a confidence sequence);
    no interval before there are two sessions.
    """

    mean: float
    low: float | None
    high: float | None


class RoundView(msgspec.Struct, frozen=True):
    """A round over all sessions of a group. `entropy` is in bits, of the states, on average."""

    round: int
    decisions: int
    entropy: float | None
    rewards: int
    reward: Band | None


class DayView(msgspec.Struct, frozen=True):
    """The sessions of a group that began on a day (`YYYY-MM-DD`, UTC) and have rewards."""

    day: str
    sessions: int
    rewards: int
    reward: Band | None


class GroupView(msgspec.Struct, frozen=True):
    """The totals of an experiment group: the main one, the holdout, or another.

    The band allows for rewards of one session being alike.
    """

    group: str
    policy: str
    share: float
    sessions: int
    decisions: int
    rewards: int
    reward: Band | None
    rounds: list[RoundView]
    days: list[DayView] = []


class DifferenceView(msgspec.Struct, frozen=True):
    """The difference in mean reward, group `above` minus `group`, with its interval.

    The intervals of all groups hold together, at every look (95 %).
    """

    group: str
    above: str
    mean: float
    low: float | None
    high: float | None


class StateView(msgspec.Struct, frozen=True):
    """A latent state of the active model, and the share of open sessions believed to be in it."""

    state: int
    name: str
    share: float
    prior: float


class Calibration(msgspec.Struct, frozen=True):
    """Means of rewards that were predicted before they were learned, a sample of all rewards.

    `error` is the standard error of their difference if the model is right.
    """

    rewards: int
    predicted: float
    received: float
    error: float


class SeriesView(msgspec.Struct, frozen=True):
    """The totals of one policy on one model since the store began.

    `calibration` is null before the first prediction, and for policies that predict no rewards.
    """

    policy: str
    model: str
    decisions: int
    rewards: int
    mean_reward: float | None
    calibration: Calibration | None = None


class RecentSession(msgspec.Struct, frozen=True):
    """An open session, the last seen first."""

    session: str
    group: str
    model: str
    round: int
    rewards: int
    mean_reward: float | None
    seen: float
    state: int | None
    state_probability: float | None


class RelearningVerdict(msgspec.Struct, frozen=True):
    """The interval of the difference in reward per session, candidate minus current model."""

    difference: float | None = None
    low: float | None = None
    high: float | None = None


class Relearning(msgspec.Struct, frozen=True):
    """One run of `latentbandits relearn`: what it decided about a candidate model, and why."""

    number: int
    started: str
    decision: str
    outcome: str
    why: str
    candidate: str
    verdict: RelearningVerdict


class Overview(msgspec.Struct, frozen=True):
    """The state of the service: totals since the store began, rates since the process did.

    `counts` holds sessions `started`, `expired`, `restarted`, `merged`, `deleted`, `open`,
    `unexplained` (sessions that no state explains), `decisions`, and rewards `applied`,
    `duplicate`, `late`, `replaced`. `difference` is the difference in mean reward, policy minus
    holdout. `play` says whether the page /play is served, `report` whether /report has the report
    of the active model's fit.
    """

    time: float
    store: str
    counts: dict[str, int]
    rates: RatesView
    groups: list[GroupView]
    difference: Band | None
    differences: list[DifferenceView]
    states: list[StateView]
    series: list[SeriesView]
    models: Models
    recent: list[RecentSession]
    relearnings: list[Relearning] = []
    play: bool = True
    report: bool = False


class Earned(msgspec.Struct, frozen=True):
    """Decisions for an action, the rewards that came, and their mean.

    It has no interval before there are ten sessions.
    """

    decisions: int
    rewards: int
    reward: Band | None


class ActionEarned(msgspec.Struct, frozen=True):
    """An action: what it earned, from all sessions and by the state that was believed likeliest."""

    action: str
    name: str
    total: Earned
    states: list[Earned]


class ActionsEarned(msgspec.Struct, frozen=True):
    """Lists what the active model's actions earned, the most shown first (at most 100).

    The latest decisions and rewards of the log are counted, at most 10,000, from `since` on
    (seconds since 1970; None if there are none). `states` has the names of the states.
    """

    model: str
    since: float | None
    decisions: int
    states: list[str]
    actions: list[ActionEarned]


class CatalogueItem(msgspec.Struct, frozen=True):
    """An action: its id, what people call it, and the reward expected of it in each state."""

    action: str
    name: str
    expected: list[float]


class CatalogueView(msgspec.Struct, frozen=True):
    """The actions of the active model, the most telling first.

    `items` has at most 100; it is empty where actions come with each request. `favours` names, for
    each state, the actions with a higher expected reward than in other states; `low` and `high` are
    the least and the greatest reward that is expected of any action in any state.
    """

    model: str
    states: list[str]
    prior: list[float]
    low: float
    high: float
    favours: list[list[str]]
    items: list[CatalogueItem]


class PlayRequest(Request, frozen=True):
    """A game of the page /play: `seed` decides what is offered and how the policy draws.

    `picks` are the places, from 0, that the visitor took in the offers so far. `model` is the id
    of the model to play with; the active one by default.
    """

    seed: Annotated[int, Meta(ge=0, lt=2**32)]
    picks: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=MAX_PICKS)] = []
    model: Id | None = None


class PlayView(msgspec.Struct, frozen=True):
    """A game after these picks; nothing of it is stored.

    `offer` has the ids of the actions to pick from next. `guesses` and `taken` have one action for
    each round, `state_probabilities` one belief before the first round and one after each.
    `next_list` is the list of actions that the policy would show this visitor now.
    """

    model: str
    offer: list[str]
    guesses: list[str]
    taken: list[str]
    state_probabilities: list[list[float]]
    next_list: list[str] = []


class Problem(msgspec.Struct, frozen=True):
    """Why a request was refused: a word for programs and a sentence for people."""

    code: str
    message: str


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every answer that is not a success.

    Nothing was done, unless `outcome` is "unknown" (status 504): then repeat the request with the
    same request id.
    """

    error: Problem
    outcome: Literal["unknown"] | None = None


class Health(msgspec.Struct, frozen=True):
    """Whether the service is up, or ready."""

    status: str


_BATCH = Meta(min_length=1, max_length=MAX_BATCH)
ActionBody = NewActionRequest | Annotated[list[NewActionRequest], _BATCH]
DecideBody = DecideRequest | Annotated[list[DecideRequest], _BATCH]
RewardBody = RewardRequest | Annotated[list[RewardRequest], _BATCH]


class NotAdmitted(Exception):  # noqa: N818 - an answer, not a fault
    """A request that HTTP alone refuses."""

    def __init__(self, status: int, code: str, message: str, retry_after: float = 1.0) -> None:
        self.status = status
        self.problem = Problem(code, message)
        self.retry_after = retry_after

    def answer(self) -> Answered:
        """Return the status, body and further headers of the refusal."""
        return problem_answer(self.status, self.problem, self.retry_after)


def problem_answer(status: int, problem: Problem, retry_after: float = 1.0) -> Answered:
    """Return the status, body and further headers of an answer with a problem."""
    extra: RawHeaders = {}
    if status == 401:
        extra[b"www-authenticate"] = b"Bearer"
    if status in (429, 503):
        extra[b"retry-after"] = b"%d" % max(1, math.ceil(retry_after))
    if status == 408:  # the rest of the request may never come
        extra[b"connection"] = b"close"
    return status, encode_json(ErrorBody(problem, "unknown" if status == 504 else None)), extra
