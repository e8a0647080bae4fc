"""The endpoints of the service: a handler for each, and one list of them.

A handler calls the engine with a checked request, and returns the answer. Routes, the OpenAPI
document and the reference are made from the list.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from latentbandits.serving.engine.idempotency import digest, once
from latentbandits.serving.engine.model_rows import read_artefact
from latentbandits.serving.engine.values import Id
from latentbandits.serving.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Refused,
    StoreUnavailable,
)
from latentbandits.serving.http.game import play
from latentbandits.serving.http.keys import Caller, Scope
from latentbandits.serving.http.messages import (
    MAX_PAGE,
    ActionBody,
    ActionsEarned,
    ActivateRequest,
    ActiveModel,
    CatalogueChange,
    CatalogueView,
    DecideBody,
    Decided,
    DecideRequest,
    Event,
    Forgotten,
    ForgottenDecisions,
    ForgottenRequest,
    Log,
    MergeRequest,
    Models,
    Overview,
    PlayRequest,
    PlayView,
    RewardBody,
    Rewarded,
    RewardRequest,
    SessionView,
)
from latentbandits.serving.http.tokens import RewardTokens
from latentbandits.serving.http.views import (
    LATEST,
    actions_earned,
    catalogue,
    events_of,
    models,
    overview,
    relearnings,
    state_names,
    view_with,
)
from latentbandits.serving.log import CURSOR, forgotten
from latentbandits.serving.settings import MAIN
from latentbandits.serving.stores.protocol import LogReader, all_events
from latentbandits.serving.tuning import lacks_policy, tune_apart

if TYPE_CHECKING:
    from latentbandits.models.clicks import ClickModel
    from latentbandits.serving.engine.engine import Engine
    from latentbandits.serving.engine.models import ServedModel
    from latentbandits.serving.engine.sessions import Live
    from latentbandits.serving.http.service import Service

One = TypeVar("One")
Answer = TypeVar("Answer")
_MOST_PAGES = 10
_READ_AT_ONCE = 25  # decisions that are read before other requests have a turn
_SHOWN_AFTER_MERGE = 100  # rounds: a user may have thousands of sessions, merged one by one
_TUNING_SHARE = 0.8  # share of a request's time for tuning a new model
_SEPARATOR = "\x1f"  # between a key's session prefix and ids; no id contains it
_log = logging.getLogger("latentbandits")
_check_id = partial(msgspec.convert, type=Id)


class Call(NamedTuple):
    """A request to an endpoint: its checked body, its parameters, and who asks."""

    service: Service
    body: Any
    parameters: dict[str, str]
    caller: Caller


def each(call: Callable[[One], Any], requests: One | list[One]) -> Any:
    """Answer one request, or each of a list, with its answer or its refusal."""
    if not isinstance(requests, list):
        return call(requests)
    answers: list[Any] = []
    for request in requests:
        try:
            answers.append(call(request))
        except StoreUnavailable:
            raise
        except Refused as refusal:
            answers.append(refusal)
    return answers


def listed(body: One | list[One]) -> list[One]:
    """Return one request, or many, as a list."""
    return body if isinstance(body, list) else [body]


def work_of(body: object) -> int:
    """Return how many decisions or rewards a body asks for."""
    return len(listed(body))


def _check_owner(caller: Caller, session: str) -> None:
    if not caller.owns(session):
        raise Forbidden(f"this key is for sessions whose id begins with {caller.sessions!r}")


def _check_merged(engine: Engine, caller: Caller, session: str) -> None:
    """Refuse a session that was merged into one of another key's sessions."""
    row = engine.store.session_named(session) if caller.sessions else None
    if row is not None and row.merged_into is not None:
        kept = engine.store.session(engine.store.root(row.key))
        if kept is not None:
            _check_owner(caller, kept.name)


def _own_id(caller: Caller, text: str | None) -> str | None:
    """Return an id that keys limited to different sessions cannot share."""
    if text is None or not caller.sessions:
        return text
    return f"{caller.sessions}{_SEPARATOR}{text}"


async def decide(call: Call) -> Any:
    """Decide for one session, or for each of a list."""
    caller, body = call.caller, call.body

    def one(engine: Engine, request: DecideRequest) -> Any:
        if caller.sessions:
            _check_owner(caller, request.session)
            _check_merged(engine, caller, request.session)
            request_id = _own_id(caller, request.request_id)
            request = msgspec.structs.replace(request, request_id=request_id)
        return engine.batch.ask(request)

    names = [request.session for request in listed(body)]
    answers = await call.service.writer.run(
        lambda engine: each(partial(one, engine), body), work=work_of(body), sessions=names
    )
    return _with_tokens(call.service.tokens, body, answers)


def _with_tokens(tokens: RewardTokens, body: Any, answers: Any) -> Any:
    """Add tokens to the decisions whose requests ask for one."""
    if isinstance(body, list):
        return [_with_tokens(tokens, *pair) for pair in zip(body, answers, strict=True)]
    if not body.reward_token or not isinstance(answers, Decided):
        return answers
    return msgspec.structs.replace(answers, reward_token=tokens.sign(answers.decision_id))


def reward(call: Call) -> Awaitable[Any]:
    """Learn one reward, or each of a list."""
    caller, body = call.caller, call.body

    def one(engine: Engine, request: RewardRequest) -> Any:
        return engine.batch.tell(_owned_reward(engine, caller, request), caller.name)

    ids = [request.decision_id for request in listed(body)]
    return call.service.writer.run(
        lambda engine: each(partial(one, engine), body), work=work_of(body), decisions=ids
    )


async def correct(call: Call) -> Rewarded:
    """Replace the reward of a decision."""
    caller, body = call.caller, call.body
    return await call.service.writer.run(
        lambda engine: engine.correct(_owned_reward(engine, caller, body), caller.name)
    )


def _owned_reward(engine: Engine, caller: Caller, request: RewardRequest) -> RewardRequest:
    """Return a reward with an event id of this caller; refuse a reward of another key's session."""
    if not caller.sessions:
        return request
    _check_decision(engine, caller, request.decision_id)
    return msgspec.structs.replace(request, event_id=_own_id(caller, request.event_id))


def _check_decision(engine: Engine, caller: Caller, decision_id: str) -> None:
    """Refuse a decision of another key's session as if there were none."""
    row = engine.batch.decision(decision_id)
    session = engine.store.session(row.session)
    if session is None or not caller.owns(session.name):
        raise NotFound("decision", decision_id)


def _has_decision(engine: Engine, caller: Caller, decision_id: str) -> bool:
    try:
        _check_decision(engine, caller, decision_id)
    except NotFound:
        return False
    return True


async def show_session(call: Call) -> SessionView:
    """Return what is known of a session."""
    name = _session(call)

    def find(engine: Engine) -> tuple[Live, list[int]]:
        _check_merged(engine, call.caller, name)
        return engine.latest(name)

    return await _shown(call.service, *await call.service.writer.run(find))


async def _shown(service: Service, live: Live, orders: Sequence[int]) -> SessionView:
    """Return a session with its decisions of these orders.

    They are read a few at a time, so that other requests are not held up.
    """

    def read(part: Sequence[int], engine: Engine) -> list[Event]:
        return events_of(engine.history(part))

    return view_with(live, await _in_parts(service, orders, read))


async def _in_parts(
    service: Service, wanted: Sequence[One], read: Callable[[Sequence[One], Engine], list[Answer]]
) -> list[Answer]:
    """Read a few decisions at a time, so that the requests of others are not held up."""
    found: list[Answer] = []
    for begin in range(0, len(wanted), _READ_AT_ONCE):
        part = wanted[begin : begin + _READ_AT_ONCE]
        found += await service.writer.run(partial(read, part))
    return found


async def delete_session(call: Call) -> Forgotten:
    """Forget a session, once for each request id."""
    name = _session(call)
    request_id = _request_id(call)

    def forget(engine: Engine) -> Forgotten:
        _check_merged(engine, call.caller, name)
        operation = f"forget the session of the hash {digest(name)}"
        delete = partial(engine.delete, name, call.caller.name)
        return Forgotten(name, once(engine.store, request_id, operation, delete, int))

    return await call.service.writer.run(forget)


def _request_id(call: Call) -> str | None:
    text = call.parameters.get("request_id")
    try:
        return None if text is None else _own_id(call.caller, _check_id(text))
    except msgspec.ValidationError as error:
        raise Invalid(f"request_id: {error}") from None


async def merge(call: Call) -> SessionView:
    """Make two sessions one, and return it with its latest decisions only."""
    into, other = call.body.into, call.body.other
    for name in (into, other):
        _check_owner(call.caller, name)

    def merge_both(engine: Engine) -> None:
        for name in (into, other):
            _check_merged(engine, call.caller, name)
        engine.merge(into, other, call.caller.name)

    await call.service.writer.run(merge_both, sessions=(into, other))
    found = await call.service.writer.run(lambda engine: engine.latest(into, _SHOWN_AFTER_MERGE))
    return await _shown(call.service, *found)


async def show_models(call: Call) -> Models:
    """Return all models and their activations."""
    return await call.service.writer.run(models)


async def show_active(call: Call) -> ActiveModel:
    """Return the active model's files, and the salt that chooses the held-out sessions."""

    def find(engine: Engine) -> ActiveModel:
        row = engine.library.row(engine.library.active.model)
        return ActiveModel(row.id, row.name, row.files, engine.judging_salt)

    return await call.service.writer.run(find)


async def show_catalogue(call: Call) -> CatalogueView:
    """Return the actions of the active model."""
    return await call.service.writer.run(catalogue)


async def show_actions(call: Call) -> ActionsEarned:
    """Return what each action of the active model earned lately."""

    def find(engine: Engine) -> tuple[str, list[str], dict[str, str]]:
        served = engine.library.served(engine.library.active.model)
        states = state_names(engine, served)
        names = dict(zip(served.space.names or (), served.space.titles, strict=True))
        return served.id, states, names

    found = await call.service.writer.run(find)

    def read(reader: LogReader) -> ActionsEarned:
        end = reader.end()
        return actions_earned(all_events(reader, max(0, end - LATEST), end), *found)

    return await call.service.beside(read)


async def add_actions(call: Call) -> CatalogueChange:
    """Add one or several actions to the active catalogue."""
    added = listed(call.body)
    return await _change(
        call,
        f"add actions of the hash {digest(msgspec.json.encode(added).decode())}",
        [action.id for action in added],
        lambda engine: engine.add_actions(added, call.caller.name),
    )


async def retire_action(call: Call) -> CatalogueChange:
    """Retire an action of the active catalogue."""
    action = call.parameters["action"]
    return await _change(
        call,
        f"retire the action {action!r}",
        [action],
        lambda engine: engine.retire_action(action, call.caller.name),
    )


async def _change(
    call: Call, operation: str, actions: list[str], act: Callable[[Engine], ServedModel]
) -> CatalogueChange:
    """Change the active catalogue, once for each request id."""
    request_id = _request_id(call)

    def change(engine: Engine) -> CatalogueChange:
        def once_only() -> CatalogueChange:
            served = act(engine)
            n_actions = len(served.space.names or ()) - len(served.space.retired)
            return CatalogueChange(served.id, actions, n_actions)

        return once(engine.store, request_id, operation, once_only, CatalogueChange)

    return await call.service.writer.run(change)


async def activate(call: Call) -> Models:
    """Activate a model of the models folder or of the store."""
    body, service = call.body, call.service
    if (body.path is None) == (body.model is None):
        raise Invalid("give either `path`, a folder with a saved model, or `model`, an id")
    row = None
    if body.path is not None:
        folder = _below(service.models_folder, body.path)
        try:
            row = await service.in_thread(read_artefact, folder)
        except Invalid as invalid:  # name the model, not its path on this machine
            raise Invalid(invalid.message.replace(str(folder), body.path)) from None

    tuned = None
    if row is not None and await service.writer.run(partial(lacks_policy, row=row)):
        seconds = _TUNING_SHARE * service.settings.request_timeout
        tuned = await service.in_thread(tune_apart, row, seconds)

    def swap(engine: Engine) -> Models:
        model = row if row is not None else engine.store.model(body.model or "")
        if model is None:
            raise NotFound("model", body.model or "")

        def activate() -> str:
            if tuned is not None and lacks_policy(engine, model):
                engine.library.keep_tuned(model.id, tuned)
            new = engine.activate(
                model,
                body.mode,
                force=body.force,
                who=call.caller.name,
                if_active=body.if_active,
                click_model=body.click_model,
            )
            _log.info("active model %s (%s): policy %s", new.id, new.name, new.of_group(MAIN).text)
            return new.id

        operation = f"activate {model.id} as {body.mode}, force {body.force}"
        if body.click_model is not None:
            operation += f", click model {body.click_model}"
        once(engine.store, body.request_id, operation, activate, str)
        return models(engine)

    return await service.writer.run(swap)


def _below(folder: Path | None, path: str) -> Path:
    """Return a path inside the models folder; refuse every other path."""
    if folder is None:
        raise Conflict("this service has no models folder: start it with --models")
    target = (folder / path).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise Invalid(f"{path!r} is not below the models folder of this service")
    return target


async def read_log(call: Call) -> Log:
    """Return a page of the log, without the sessions of other keys."""
    since = call.parameters.get("since", "")
    until = call.parameters.get("until", "")
    limit = call.parameters.get("limit", "100")
    if re.fullmatch("[1-9][0-9]{0,3}", limit) is None or int(limit) > MAX_PAGE:
        raise Invalid(f"limit must be a whole number from 1 to {MAX_PAGE}; got {limit[:20]!r}")
    for _ in range(_MOST_PAGES):  # pages may hold no session that a limited key may read
        page = await call.service.read_log(since, int(limit), until)
        log = Log(
            [entry for entry in page.decisions if call.caller.owns(entry.session)],
            [entry for entry in page.rewards if call.caller.owns(entry.session)],
            page.next,
            page.end,
        )
        if log.decisions or log.rewards or page.next == since:
            break
        since, until = page.next, page.end
    return log


async def find_forgotten(call: Call) -> ForgottenDecisions:
    """Return the decisions that the store no longer has, or that a limited key may not see."""
    decisions = call.body.decisions
    if not call.caller.sessions:
        gone = await call.service.beside(lambda reader: forgotten(reader, decisions))
        return ForgottenDecisions(gone)

    def lacking(part: Sequence[str], engine: Engine) -> list[str]:
        return [one for one in part if not _has_decision(engine, call.caller, one)]

    return ForgottenDecisions(await _in_parts(call.service, decisions, lacking))


async def show_overview(call: Call) -> Overview:
    """Return the totals that the page shows."""
    shown: Overview = await call.service.writer.run(overview, urgent=True)
    settings = call.service.settings
    runs = relearnings(settings.relearn)
    [active] = [one.name for one in shown.models.models if one.active]
    report = call.service.report_file(active) is not None
    return msgspec.structs.replace(shown, relearnings=runs, play=settings.play, report=report)


async def play_game(call: Call) -> PlayView:
    """Play a game of the page /play; nothing is stored."""

    def find(engine: Engine) -> tuple[ServedModel, ClickModel]:
        served = engine.library.served(call.body.model or engine.library.active.model)
        return served, engine.library.click_model(served)

    served, clicks = await call.service.writer.run(find)
    return await call.service.in_thread(play, served, call.body, clicks)


def _session(call: Call) -> str:
    text = call.parameters["session"]
    try:
        name: str = _check_id(text)
    except msgspec.ValidationError:
        raise NotFound("session", text) from None
    _check_owner(call.caller, name)
    return name


class Parameter(NamedTuple):
    """A parameter of a path or a query, with its JSON schema."""

    name: str
    place: str  # "path" or "query"
    schema: dict[str, Any]
    description: str


class Endpoint(NamedTuple):
    """A request that can be made: its address, its scope, its types and its handler."""

    method: str
    path: str
    scope: Scope
    summary: str
    answer: Any
    handle: Callable[[Call], Awaitable[Any]]
    body: Any = None
    status: int = 200
    many: bool = False  # whether the body may be a list; the answer is then a list with status 200
    errors: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    by_token: bool = False  # whether tokens in the body may take the place of a key
    shared: bool = False  # whether it concerns all sessions: refused for keys limited to some


_ID = {"type": "string", "minLength": 1}
_PLACE = {"type": "string", "pattern": CURSOR}
_COUNT = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}
_SESSION = Parameter("session", "path", _ID, "the id of a session")
_ACTION = Parameter("action", "path", _ID, "the id of an action")
_REQUEST_ID = Parameter(
    "request_id",
    "query",
    {**_ID, "maxLength": 200},
    "the same id again changes nothing, and gets the same answer",
)
_SINCE = Parameter("since", "query", _PLACE, "the `next` of an earlier page")
_UNTIL = Parameter("until", "query", _PLACE, "the `end` of the first page")
_LIMIT = Parameter("limit", "query", _COUNT, "events on a page")
PLAY = "/v1/play"
ENDPOINTS = (
    Endpoint("POST", "/v1/decide", "decide", "Decide what a session gets next, or up to 100.",
             Decided, decide, DecideBody, 201, True, (409,)),
    Endpoint("POST", "/v1/reward", "reward", "Tell what a decision earned, or up to 100.",
             Rewarded, reward, RewardBody, 200, True, (404, 409), by_token=True),
    Endpoint("PUT", "/v1/reward", "admin", "Correct the reward of a decision.",
             Rewarded, correct, RewardRequest, errors=(404, 409)),
    Endpoint("POST", "/v1/sessions/merge", "admin", "Two sessions are one user.",
             SessionView, merge, MergeRequest, errors=(404,)),
    Endpoint("GET", "/v1/sessions/{session}", "read", "What is known of a session.",
             SessionView, show_session, errors=(404,), parameters=(_SESSION,)),
    Endpoint("DELETE", "/v1/sessions/{session}", "admin", "Forget everything about a session.",
             Forgotten, delete_session, errors=(404, 409),
             parameters=(_SESSION, _REQUEST_ID)),
    Endpoint("GET", "/v1/models", "read", "The models, and when each was activated.",
             Models, show_models),
    Endpoint("GET", "/v1/models/active", "admin", "The active model whole, for relearning.",
             ActiveModel, show_active, shared=True),
    Endpoint("GET", "/v1/catalogue", "read", "What the active model expects of its actions.",
             CatalogueView, show_catalogue),
    Endpoint("GET", "/v1/actions", "read", "What each action earned lately.",
             ActionsEarned, show_actions, shared=True),
    Endpoint("POST", "/v1/actions", "admin", "Add actions to the active catalogue.",
             CatalogueChange, add_actions, ActionBody, 201, errors=(409,),
             parameters=(_REQUEST_ID,), shared=True),
    Endpoint("DELETE", "/v1/actions/{action}", "admin", "Never choose an action again.",
             CatalogueChange, retire_action, errors=(404, 409),
             parameters=(_ACTION, _REQUEST_ID), shared=True),
    Endpoint("POST", "/v1/models/activate", "admin", "Use another model from now on.",
             Models, activate, ActivateRequest, errors=(404, 409), shared=True),
    Endpoint("GET", "/v1/log", "read", "Decisions and rewards by commit.",
             Log, read_log, parameters=(_SINCE, _UNTIL, _LIMIT)),
    Endpoint("POST", "/v1/log/forgotten", "read", "Which of these decisions were forgotten.",
             ForgottenDecisions, find_forgotten, ForgottenRequest),
    Endpoint("GET", "/v1/overview", "read", "What the service is doing, at a glance.",
             Overview, show_overview, shared=True),
    Endpoint("POST", PLAY, "read", "Play a game of the page /play: nothing is stored.",
             PlayView, play_game, PlayRequest, errors=(404,)),
)  # fmt: skip
