"""The requests of a client of the decision service, and when they are repeated; no I/O here.

Each method of `Conversations` is a generator. It yields a `Send` or a `Pause`, is sent the `Reply`
to the last `Send` (status 0 where none came), and returns the answer. The time that a call may take
begins with its first request.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

from latentbandits.extras import needed_by

with needed_by("latentbandits.client"):
    import msgspec

    from latentbandits.serving.http.messages import (
        MAX_BATCH,
        MAX_PAGE,
        ActionsEarned,
        ActivateRequest,
        ActiveModel,
        CatalogueChange,
        CatalogueView,
        Decided,
        DecideRequest,
        ErrorBody,
        Forgotten,
        ForgottenDecisions,
        ForgottenRequest,
        Log,
        MergeRequest,
        Models,
        NewActionRequest,
        Overview,
        Rewarded,
        RewardRequest,
        SessionView,
    )
    from latentbandits.serving.records import FALLBACK, RequestedMode

Answer = TypeVar("Answer")
Request = TypeVar("Request", DecideRequest, RewardRequest)
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_FIRST_PAUSE = 0.05  # seconds; doubled with every attempt, and drawn at random up to that


class ServiceError(Exception):
    """The service refused a request: `status` is the HTTP status, `code` a word for programs."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}" if status else message)
        self.status = status
        self.code = code
        self.message = message


class NoAnswerError(ServiceError):
    """No valid answer came in time; the service may have done the request all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "no_answer", message)


class Send(NamedTuple):
    """A request to send; it may be sent again without being done twice.

    `until` is the time of `time.monotonic` at which the call must have ended.
    """

    method: str
    path: str
    body: bytes | None = None
    until: float = float("inf")


class Pause(NamedTuple):
    """A time to wait before the next attempt."""

    seconds: float


class Reply(NamedTuple):
    """An answer as it came: header names in lower case; status 0 and the reason if none came.

    `final` says that another attempt would end in the same way.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    final: bool = False


Conversation: TypeAlias = Generator[Send | Pause, Reply, Answer]


class DecideOptions(TypedDict, total=False):
    """Options of `decide`, all of which may be left out."""

    request_id: str | None
    default: str | None
    exclude: Sequence[str] | None
    user_features: Mapping[str, str | float | bool | None] | None
    user: str | None
    reward_token: bool
    length: int | None


class RewardOptions(TypedDict, total=False):
    """Options of `reward` and `correct`, all of which may be left out."""

    event_id: str | None
    clicked: str | msgspec.UnsetType | None
    values: Mapping[str, float] | None


class Conversations:
    """The calls of both clients: up to `retries` attempts after the first, within `deadline`."""

    def __init__(self, deadline: float = 4.0, retries: int = 3) -> None:
        self._retries = retries
        self._deadline = deadline

    def decide(
        self,
        session: str,
        actions: Sequence[str] | None = None,
        features: Sequence[Sequence[float] | Mapping[str, Any]] | Mapping[str, Any] | None = None,
        **options: Unpack[DecideOptions],
    ) -> Conversation[Decided]:
        """Return the service's decision; `default`, marked as a fallback, if no answer comes.

        Without `actions`, all actions of the model but the ones in `exclude` are eligible.
        `user_features` are the attributes of a new session's user, by name. `user` says who asks,
        where the session is a population whose users share a belief. `reward_token` asks for a
        token, with which a web page may report the reward itself. `length` asks for an ordered list
        of that many actions: `shown` has them.
        """
        default, sent = options.get("default"), dict[str, Any](options)
        sent["request_id"] = options.get("request_id") or str(uuid.uuid4())
        sent["default"] = default if actions is not None and default in actions else None
        for name, kind in (("exclude", list), ("user_features", dict)):
            if sent.get(name) is not None:
                sent[name] = kind(sent[name])
        request = DecideRequest(
            session,
            None if actions is None else list(actions),
            None if features is None else _features(features),
            **sent,
        )
        send = Send("POST", "/v1/decide", _body(request))
        try:
            return (yield from self._ask(send, Decided))
        except ServiceError as error:
            if default is None or not _passing(error):
                raise
            return fallback(actions, default)

    def decide_many(
        self,
        requests: Iterable[DecideRequest | Mapping[str, Any] | tuple[str, Sequence[str] | None]],
    ) -> Conversation[list[Decided | ServiceError]]:
        """Return a decision or the reason for a refusal for each request; 100 are sent at a time.

        A request is a `DecideRequest`, a mapping with its fields, or a pair of a session and its
        eligible actions; each gets a request id. The deadline is for each 100 of them.
        """
        asked = _requests(DecideRequest, requests, _decision_of_pair)
        identified = [
            request
            if request.request_id is not None
            else msgspec.structs.replace(request, request_id=str(uuid.uuid4()))
            for request in asked
        ]
        return (yield from self._each("/v1/decide", identified, Decided))

    def reward(
        self,
        decision_id: str,
        value: float | msgspec.UnsetType = msgspec.UNSET,
        **options: Unpack[RewardOptions],
    ) -> Conversation[Rewarded]:
        """Report the reward of a decision; a repeated report changes nothing.

        Of a list, report which action was `clicked` (None: none was), or the `values` of some or
        all of its actions.
        """
        request = _reward(decision_id, value, **options)
        send = Send("POST", "/v1/reward", _body(request))
        return (yield from self._ask(send, Rewarded))

    def reward_many(
        self, rewards: Iterable[RewardRequest | Mapping[str, Any] | tuple[str, float]]
    ) -> Conversation[list[Rewarded | ServiceError]]:
        """Report rewards, 100 in a request.

        A reward is a `RewardRequest`, a mapping with its fields, or a pair of a decision's id and
        the value. The deadline is for each 100 of them.
        """
        told = _requests(RewardRequest, rewards, _reward_of_pair)
        return (yield from self._each("/v1/reward", told, Rewarded))

    def correct(
        self,
        decision_id: str,
        value: float | msgspec.UnsetType = msgspec.UNSET,
        **options: Unpack[RewardOptions],
    ) -> Conversation[Rewarded]:
        """Replace the reward of a decision; the session then has learned the new one instead."""
        options["event_id"] = options.get("event_id") or str(uuid.uuid4())
        request = _reward(decision_id, value, **options)
        send = Send("PUT", "/v1/reward", _body(request))
        return (yield from self._ask(send, Rewarded))

    def session(self, session: str) -> Conversation[SessionView]:
        """Return a session: its belief and its latest decisions."""
        return (yield from self._ask(Send("GET", _session_path(session)), SessionView))

    def forget(self, session: str, *, request_id: str | None = None) -> Conversation[Forgotten]:
        """Forget everything about a session; with the same request id, once."""
        query = urlencode({"request_id": request_id or str(uuid.uuid4())})
        send = Send("DELETE", f"{_session_path(session)}?{query}")
        return (yield from self._ask(send, Forgotten))

    def merge(self, into: str, other: str) -> Conversation[SessionView]:
        """Merge two sessions of one user: from then on `other` is another name of `into`."""
        body = _body(MergeRequest(into, other))
        return (yield from self._ask(Send("POST", "/v1/sessions/merge", body), SessionView))

    def activate(
        self,
        path: str | None = None,
        mode: RequestedMode | None = None,
        *,
        model: str | None = None,
        force: bool = False,
        request_id: str | None = None,
        if_active: str | None = None,
        click_model: str | None = None,
    ) -> Conversation[Models]:
        """Use another model, named by its folder or its id; with the same request id, once.

        With `if_active` the service refuses (409) where another model than that one is active.
        In the mode "trial" half of the new sessions use it, until the next activation.
        `click_model` says how users look at lists; by default it is the service's setting.
        """
        sent = request_id or str(uuid.uuid4())
        request = ActivateRequest(path, model, mode, force, sent, if_active, click_model)
        send = Send("POST", "/v1/models/activate", _body(request))
        return (yield from self._ask(send, Models))

    def add_action(
        self,
        action: str,
        *,
        name: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        vector: Sequence[float] | None = None,
        request_id: str | None = None,
    ) -> Conversation[CatalogueChange]:
        """Add an action to the active catalogue, by its attributes, its vector, or neither."""
        body = NewActionRequest(
            action,
            name,
            None if attributes is None else dict(attributes),
            None if vector is None else [float(x) for x in vector],
        )
        query = urlencode({"request_id": request_id or str(uuid.uuid4())})
        send = Send("POST", f"/v1/actions?{query}", _body(body))
        return (yield from self._ask(send, CatalogueChange))

    def retire_action(
        self, action: str, *, request_id: str | None = None
    ) -> Conversation[CatalogueChange]:
        """Retire an action of the active catalogue: it is never chosen again."""
        query = urlencode({"request_id": request_id or str(uuid.uuid4())})
        path = f"/v1/actions/{_quoted(action)}?{query}"
        return (yield from self._ask(Send("DELETE", path), CatalogueChange))

    def models(self) -> Conversation[Models]:
        """Return the models of the service."""
        return (yield from self._ask(Send("GET", "/v1/models"), Models))

    def active_model(self) -> Conversation[ActiveModel]:
        """Return the active model whole, and the salt of the judged sessions; for admin keys."""
        return (yield from self._ask(Send("GET", "/v1/models/active"), ActiveModel))

    def catalogue(self) -> Conversation[CatalogueView]:
        """Return the actions of the active model and their expected rewards."""
        return (yield from self._ask(Send("GET", "/v1/catalogue"), CatalogueView))

    def actions(self) -> Conversation[ActionsEarned]:
        """Return what each action of the active model earned lately, by state too."""
        return (yield from self._ask(Send("GET", "/v1/actions"), ActionsEarned))

    def overview(self) -> Conversation[Overview]:
        """Return the totals that the page at / shows."""
        return (yield from self._ask(Send("GET", "/v1/overview"), Overview))

    def log(self, since: str = "", limit: int = 1000, until: str = "") -> Conversation[Log]:
        """Return a page of the log; `next` is the `since` of the page after it.

        With the first page's `end` as the `until` of the others, all are the log at one moment.
        """
        asked: dict[str, str | int] = {"since": since, "limit": limit}
        query = urlencode(asked | {"until": until} if until else asked)
        return (yield from self._ask(Send("GET", f"/v1/log?{query}"), Log))

    def forgotten(self, decisions: Sequence[str]) -> Conversation[list[str]]:
        """Return the ids of those decisions that were forgotten: copies must drop them too."""
        sessions: list[str] = []
        for start in range(0, len(decisions), MAX_PAGE):
            body = _body(ForgottenRequest(list(decisions[start : start + MAX_PAGE])))
            send = Send("POST", "/v1/log/forgotten", body)
            sessions += (yield from self._ask(send, ForgottenDecisions)).forgotten
        return sessions

    def _each(
        self, path: str, requests: Sequence[Any], kind: type[Answer]
    ) -> Conversation[list[Answer | ServiceError]]:
        answers: list[Answer | ServiceError] = []
        for start in range(0, len(requests), MAX_BATCH):
            body = _body(requests[start : start + MAX_BATCH])
            many = yield from self._ask(Send("POST", path, body), list[msgspec.Raw])
            answers += [_one_of_many(kind, one) for one in many]
        return answers

    def _ask(self, send: Send, kind: type[Answer]) -> Conversation[Answer]:
        """Send a request until there is an answer, a permanent error, no attempt or no time."""
        send = send._replace(until=time.monotonic() + self._deadline)
        for attempt in range(self._retries + 1):
            reply = yield send
            if reply.final or reply.status not in (0, *_TRY_AGAIN):
                return _read(kind, reply)
            problem = _problem(reply)
            drawn = random.uniform(0, _FIRST_PAUSE * 2**attempt)
            pause = max(drawn, retry_after(reply.headers))
            if attempt == self._retries or time.monotonic() + pause >= send.until:
                break
            yield Pause(pause)
        raise problem


def fallback(actions: Sequence[str] | None, default: str) -> Decided:
    """Return the decision for the case that no answer came: without an id, so without a reward."""
    index = list(actions).index(default) if actions is not None and default in actions else -1
    return Decided(
        decision_id="",
        action=default,
        index=index,
        propensity=1.0,
        propensity_kind="exact",
        state_probabilities=[],
        model="",
        policy=FALLBACK,
        round=0,
        fallback=True,
    )


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a service asks to wait: a number or a date (RFC 9110, 10.2.3).

    >>> retry_after({"retry-after": "2"}), retry_after({}), retry_after({"retry-after": "soon"})
    (2.0, 0.0, 0.0)
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError):
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _features(features: Sequence[Any] | Mapping[str, Any]) -> Any:
    """Return features as a request has them: rows of numbers, or values by name."""
    if isinstance(features, Mapping):
        return dict(features)
    return [dict(row) if isinstance(row, Mapping) else [float(x) for x in row] for row in features]


def _session_path(session: str) -> str:
    """Return the path of a session: dots too are quoted, for "." and ".." would name folders."""
    return f"/v1/sessions/{_quoted(session)}"


def _quoted(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")


def _decision_of_pair(session: str, actions: Sequence[str] | None) -> DecideRequest:
    return DecideRequest(session, None if actions is None else list(actions))


def _reward(
    decision_id: str, value: float | msgspec.UnsetType, **options: Unpack[RewardOptions]
) -> RewardRequest:
    sent = dict[str, Any](options)
    if sent.get("values") is not None:
        sent["values"] = {action: float(one) for action, one in sent["values"].items()}
    told = value if isinstance(value, msgspec.UnsetType) else float(value)
    return RewardRequest(decision_id, told, **sent)


def _reward_of_pair(decision_id: str, value: float) -> RewardRequest:
    return RewardRequest(decision_id, float(value))


def _requests(
    kind: type[Request], given: Iterable[Any], of_pair: Callable[[Any, Any], Request]
) -> list[Request]:
    """Return the requests of a batch, from any of the shapes in which they may be given."""
    result: list[Request] = []
    for i, one in enumerate(given):
        if isinstance(one, kind):
            result.append(one)
        elif isinstance(one, Mapping):
            try:
                result.append(msgspec.convert(one, kind))
            except msgspec.ValidationError as error:
                raise msgspec.ValidationError(f"item {i}: {error}") from None
        elif isinstance(one, (tuple, list)) and len(one) == 2:
            result.append(of_pair(*one))
        else:
            first, second = kind.__struct_fields__[:2]
            raise TypeError(
                f"item {i} must be a {kind.__name__}, a mapping with its fields, or a pair of "
                f"{first} and {second}; got {str(one)[:100]!r}"
            )
    return result


def _body(request: Any) -> bytes:
    """Return a request as JSON."""
    try:
        return msgspec.json.encode(request)
    except RecursionError:
        raise ValueError(
            "a value of the request contains itself, or is nested too deeply to be sent: features "
            "and attributes are texts, numbers, or lists of numbers"
        ) from None


def _decoded(kind: type[Answer], body: bytes | msgspec.Raw) -> Answer:
    """Return an answer of JSON; one that is nested too deeply is refused like one that is not."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None


def _read(kind: type[Answer], reply: Reply) -> Answer:
    if 200 <= reply.status < 300:
        try:
            return _decoded(kind, reply.body)
        except msgspec.DecodeError as error:
            raise NoAnswerError(f"the service's answer makes no sense: {error}") from None
    raise _problem(reply)


def _one_of_many(kind: type[Answer], raw: msgspec.Raw) -> Answer | ServiceError:
    """Decode an item of a batch's answer: the result, or the reason for its refusal."""
    try:
        return _decoded(kind, raw)
    except msgspec.DecodeError:
        problem = _problem(Reply(422, {}, bytes(raw)))
        return problem if problem.code != "http" else NoAnswerError(problem.message)


def _problem(reply: Reply) -> ServiceError:
    if reply.status == 0:
        return NoAnswerError(reply.body.decode())
    try:
        problem = _decoded(ErrorBody, reply.body).error
    except msgspec.DecodeError:
        return ServiceError(reply.status, "http", "the answer is not one of this service's")
    return ServiceError(reply.status, problem.code, problem.message)


def _passing(error: ServiceError) -> bool:
    """Return whether the service was unable to answer, so that a repetition may succeed."""
    return error.status == 0 or error.status in _TRY_AGAIN
