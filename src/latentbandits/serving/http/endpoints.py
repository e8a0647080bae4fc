"""What can be asked of the service: one list, from which the routes and the document are made."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from latentbandits.serving.engine.library import read_artefact
from latentbandits.serving.errors import Conflict, Invalid, NotFound, Refused, StoreUnavailable
from latentbandits.serving.http.catalogue import catalogue
from latentbandits.serving.http.keys import Scope
from latentbandits.serving.http.messages import (
    ActivateRequest,
    CatalogueView,
    DecideBody,
    Decided,
    DecideRequest,
    ErrorBody,
    Forgotten,
    Id,
    Log,
    MergeRequest,
    Models,
    Overview,
    Problem,
    RewardBody,
    Rewarded,
    RewardRequest,
    SessionView,
)
from latentbandits.serving.http.overview import models, overview
from latentbandits.serving.http.views import session_view
from latentbandits.serving.log import CURSOR, cursor_order

if TYPE_CHECKING:
    from latentbandits.serving.engine.engine import Engine
    from latentbandits.serving.http.service import Service

One = TypeVar("One")
_MAX_PAGE = 1_000
_check_id = partial(msgspec.convert, type=Id)


class Parameter(NamedTuple):
    name: str
    place: str  # "path" or "query"
    schema: dict[str, Any]
    description: str


class Endpoint(NamedTuple):
    method: str
    path: str
    scope: Scope
    summary: str
    answer: Any
    handle: Callable[[Service, Any, dict[str, str]], Awaitable[Any]]
    body: Any = None
    status: int = 200
    many: bool = False  # whether a list may be sent, to be answered by a list, with 200
    errors: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()


def each(call: Callable[[One], Any], requests: One | list[One]) -> Any:
    """The answer to one, or of many each: an answer, or why that one was refused."""
    if not isinstance(requests, list):
        return call(requests)
    answers: list[Any] = []
    for request in requests:
        try:
            answers.append(call(request))
        except StoreUnavailable:
            raise
        except Refused as refusal:
            answers.append(ErrorBody(Problem(refusal.code, refusal.message)))
    return answers


def _work(body: object) -> int:
    return len(body) if isinstance(body, list) else 1


async def decide(
    service: Service, body: DecideRequest | list[DecideRequest], given: dict[str, str]
) -> Any:
    return await service.writer.run(lambda engine: each(engine.decide, body), work=_work(body))


async def reward(
    service: Service, body: RewardRequest | list[RewardRequest], given: dict[str, str]
) -> Any:
    return await service.writer.run(lambda engine: each(engine.reward, body), work=_work(body))


async def show_session(service: Service, body: None, given: dict[str, str]) -> SessionView:
    name = _session(given)
    return await service.writer.run(lambda engine: session_view(engine.session(name)))


async def delete_session(service: Service, body: None, given: dict[str, str]) -> Forgotten:
    name = _session(given)
    return await service.writer.run(lambda engine: engine.delete(name))


async def merge(service: Service, body: MergeRequest, given: dict[str, str]) -> SessionView:
    return await service.writer.run(
        lambda engine: session_view(engine.merge(body.into, body.other))
    )


async def show_models(service: Service, body: None, given: dict[str, str]) -> Models:
    return await service.writer.run(models)


async def show_catalogue(service: Service, body: None, given: dict[str, str]) -> CatalogueView:
    return await service.writer.run(catalogue)


async def activate(service: Service, body: ActivateRequest, given: dict[str, str]) -> Models:
    if (body.path is None) == (body.model is None):
        raise Invalid("give either `path`, a folder with a saved model, or `model`, an id")
    row = None
    if body.path is not None:
        row = await service.in_thread(read_artefact, _below(service.models_folder, body.path))

    def swap(engine: Engine) -> Models:
        found = row if row is not None else engine.store.model(body.model or "")
        if found is None:
            raise NotFound("model", body.model or "")
        engine.activate(found, body.mode, force=body.force)
        return models(engine)

    return await service.writer.run(swap)


def _below(folder: Path | None, path: str) -> Path:
    """A path inside the models folder: nothing else on this machine can be named."""
    if folder is None:
        raise Conflict("this service has no models folder: start it with --models")
    target = (folder / path).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise Invalid(f"{path!r} is not below the models folder of this service")
    return target


async def read_log(service: Service, body: None, given: dict[str, str]) -> Log:
    since = given.get("since", "")
    limit = given.get("limit", "100")
    if re.fullmatch("[1-9][0-9]{0,3}", limit) is None or int(limit) > _MAX_PAGE:
        raise Invalid(f"limit must be a whole number from 1 to {_MAX_PAGE}; got {limit[:20]!r}")
    entries = await service.read_log(cursor_order(since), int(limit))
    return Log(entries, entries[-1].cursor if entries else since)


async def show_overview(service: Service, body: None, given: dict[str, str]) -> Overview:
    return await service.writer.run(overview, urgent=True)


def _session(given: dict[str, str]) -> str:
    try:
        name: str = _check_id(given["session"])
    except msgspec.ValidationError:
        raise NotFound("session", given["session"]) from None
    return name


_SESSION = Parameter("session", "path", {"type": "string", "minLength": 1}, "the id of a session")
ENDPOINTS = (
    Endpoint("POST", "/v1/decide", "decide", "Decide what a session gets next, or up to 100.",
             Decided, decide, DecideBody, 201, True, (409,)),
    Endpoint("POST", "/v1/reward", "reward", "Tell what a decision earned, or up to 100.",
             Rewarded, reward, RewardBody, 200, True, (404, 409)),
    Endpoint("POST", "/v1/sessions/merge", "admin", "Two sessions are one user.",
             SessionView, merge, MergeRequest, errors=(404,)),
    Endpoint("GET", "/v1/sessions/{session}", "read", "What is known of a session.",
             SessionView, show_session, errors=(404,), parameters=(_SESSION,)),
    Endpoint("DELETE", "/v1/sessions/{session}", "admin", "Forget everything about a session.",
             Forgotten, delete_session, errors=(404,), parameters=(_SESSION,)),
    Endpoint("GET", "/v1/models", "read", "The models, and when each was activated.",
             Models, show_models),
    Endpoint("GET", "/v1/catalogue", "read", "What the active model expects of its actions.",
             CatalogueView, show_catalogue),
    Endpoint("POST", "/v1/models/activate", "admin", "Use another model from now on.",
             Models, activate, ActivateRequest, errors=(404, 409)),
    Endpoint("GET", "/v1/log", "read", "Decisions in order, with their rewards.", Log, read_log,
             parameters=(
                 Parameter("since", "query", {"type": "string", "pattern": CURSOR},
                           "the `next` of an earlier page, or a decision id"),
                 Parameter("limit", "query", {"type": "integer", "minimum": 1,
                                              "maximum": _MAX_PAGE}, "decisions on a page"))),
    Endpoint("GET", "/v1/overview", "read", "What the service is doing, at a glance.",
             Overview, show_overview),
)  # fmt: skip
