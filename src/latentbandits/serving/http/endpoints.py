"""The endpoints of the service: one list, from which routes and OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from latentbandits.serving.engine.writer import Operation
from latentbandits.serving.http import handlers
from latentbandits.serving.http.handlers import Call
from latentbandits.serving.http.keys import Scope
from latentbandits.serving.http.messages import (
    MAX_PAGE,
    ActionBody,
    ActivateRequest,
    CatalogueChange,
    CatalogueView,
    DecideBody,
    Decided,
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
from latentbandits.serving.log import CURSOR


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
    shared: bool = False  # whether it concerns all sessions: refused for keys limited to some
    operation: Callable[[Call], Operation[Any]] | None = None  # the operation of `handle`, if one


_SESSION = Parameter("session", "path", {"type": "string", "minLength": 1}, "the id of a session")
_ACTION = Parameter("action", "path", {"type": "string", "minLength": 1}, "the id of an action")
_REQUEST_ID = Parameter(
    "request_id",
    "query",
    {"type": "string", "minLength": 1, "maxLength": 200},
    "the same id again changes nothing, and gets the same answer",
)
_SINCE = Parameter(
    "since",
    "query",
    {"type": "string", "pattern": CURSOR},
    "the `next` of an earlier page",
)
_UNTIL = Parameter(
    "until",
    "query",
    {"type": "string", "pattern": CURSOR},
    "the `end` of the first page",
)
_LIMIT = Parameter(
    "limit",
    "query",
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE},
    "events on a page",
)
PLAY = "/v1/play"
ENDPOINTS = (
    Endpoint("POST", "/v1/decide", "decide", "Decide what a session gets next, or up to 100.",
             Decided, handlers.decide, DecideBody, 201, True, (409,), operation=handlers.deciding),
    Endpoint("POST", "/v1/reward", "reward", "Tell what a decision earned, or up to 100.",
             Rewarded, handlers.reward, RewardBody, 200, True, (404, 409),
             operation=handlers.rewarding),
    Endpoint("PUT", "/v1/reward", "admin", "Correct the reward of a decision.",
             Rewarded, handlers.correct, RewardRequest, errors=(404, 409)),
    Endpoint("POST", "/v1/sessions/merge", "admin", "Two sessions are one user.",
             SessionView, handlers.merge, MergeRequest, errors=(404,)),
    Endpoint("GET", "/v1/sessions/{session}", "read", "What is known of a session.",
             SessionView, handlers.show_session, errors=(404,), parameters=(_SESSION,)),
    Endpoint("DELETE", "/v1/sessions/{session}", "admin", "Forget everything about a session.",
             Forgotten, handlers.delete_session, errors=(404, 409),
             parameters=(_SESSION, _REQUEST_ID)),
    Endpoint("GET", "/v1/models", "read", "The models, and when each was activated.",
             Models, handlers.show_models),
    Endpoint("GET", "/v1/catalogue", "read", "What the active model expects of its actions.",
             CatalogueView, handlers.show_catalogue),
    Endpoint("POST", "/v1/actions", "admin", "Add actions to the active catalogue.",
             CatalogueChange, handlers.add_actions, ActionBody, 201, errors=(409,),
             parameters=(_REQUEST_ID,), shared=True),
    Endpoint("DELETE", "/v1/actions/{action}", "admin", "Never choose an action again.",
             CatalogueChange, handlers.retire_action, errors=(404, 409),
             parameters=(_ACTION, _REQUEST_ID), shared=True),
    Endpoint("POST", "/v1/models/activate", "admin", "Use another model from now on.",
             Models, handlers.activate, ActivateRequest, errors=(404, 409), shared=True),
    Endpoint("GET", "/v1/log", "read", "Decisions and rewards by commit.",
             Log, handlers.read_log, parameters=(_SINCE, _UNTIL, _LIMIT)),
    Endpoint("POST", "/v1/log/forgotten", "read", "Which of these decisions were forgotten.",
             ForgottenDecisions, handlers.find_forgotten, ForgottenRequest),
    Endpoint("GET", "/v1/overview", "read", "What the service is doing, at a glance.",
             Overview, handlers.show_overview, shared=True),
    Endpoint("POST", PLAY, "read", "Play a game of the page /play: nothing is stored.",
             PlayView, handlers.play_game, PlayRequest, errors=(404,)),
)  # fmt: skip
