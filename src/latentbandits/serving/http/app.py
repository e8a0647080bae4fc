"""HTTP: translates between requests and the engine, and does nothing else."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from latentbandits.serving.errors import (
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreUnavailable,
)
from latentbandits.serving.http.endpoints import ENDPOINTS, Endpoint
from latentbandits.serving.http.handlers import Call
from latentbandits.serving.http.keys import ANYONE, Caller
from latentbandits.serving.http.messages import ErrorBody, Health, Problem
from latentbandits.serving.http.metrics import snapshot
from latentbandits.serving.http.openapi import document
from latentbandits.serving.http.pages import HEADERS, PAGES
from latentbandits.serving.http.reference import page
from latentbandits.serving.http.service import Service
from latentbandits.serving.settings import is_loopback

Background: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""A task that runs in the event loop as long as the app does."""

RawHeaders: TypeAlias = dict[bytes, bytes]
Answered: TypeAlias = tuple[int, bytes, RawHeaders]

_JSON = "application/json"
_JSON_TYPE = (b"content-type", _JSON.encode())
_NO_MORE: RawHeaders = {}
_MOST_BODY_BYTES = 32 * 2**20  # of bodies that are being read or answered; decoded, 16 times that
_encode = msgspec.json.Encoder().encode
STATUSES: tuple[tuple[type[Refused], int], ...] = (
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 422),
    (Busy, 503),
    (OutcomeUnknown, 504),
    (StoreUnavailable, 503),
)


class _Answered(Exception):  # noqa: N818 - an answer, not a fault
    """A request that HTTP alone refuses."""

    def __init__(self, status: int, code: str, message: str, retry_after: float = 1.0) -> None:
        self.status = status
        self.problem = Problem(code, message)
        self.retry_after = retry_after


def direct_handlers(service: Service) -> dict[tuple[str, str], Handler]:
    """Return the endpoints that method and path alone name: these need no routing."""
    return {(e.method, e.path): Handler(service, e) for e in ENDPOINTS if "{" not in e.path}


def create_app(service: Service, beside: Background | None = None) -> Starlette:
    """Return the service as an ASGI app; `embed` makes one that can be mounted in another."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        task = None if beside is None else asyncio.create_task(beside())
        yield
        if task is not None:
            task.cancel()
        await service.stop()

    endpoints = [(endpoint, Handler(service, endpoint)) for endpoint in ENDPOINTS]
    routes: list[BaseRoute] = [
        Route(path, _ByMethod(handlers), methods=list(handlers))
        for path, handlers in _by_path(endpoints).items()
    ]
    described = document()
    specification = _encode(described)
    reference = page(described).encode()
    routes += [
        Route("/healthz", _health),
        Route("/readyz", _readiness(service)),
        Route("/metrics", _metrics(service)),
        Route("/openapi.json", lambda request: _json(specification)),
        Route("/docs", lambda request: Response(reference, 200, HEADERS, "text/html")),
        *PAGES,
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _fault},
    )
    app.router.redirect_slashes = False  # it would redirect to whatever the Host header says
    return app


def _by_path(endpoints: Iterable[tuple[Endpoint, ASGIApp]]) -> dict[str, dict[str, ASGIApp]]:
    paths: dict[str, dict[str, ASGIApp]] = {}
    for endpoint, handler in endpoints:
        path = endpoint.path.replace("{session}", "{session:path}")  # an id may have slashes
        paths.setdefault(path, {})[endpoint.method] = handler
    return paths


class _ByMethod:
    def __init__(self, handlers: dict[str, ASGIApp]) -> None:
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._handlers[method](scope, receive, send)


class Handler:
    """An endpoint as an ASGI app: from the body's bytes to the answer's."""

    def __init__(self, service: Service, endpoint: Endpoint) -> None:
        self._service = service
        self._endpoint = endpoint
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, content, extra = await self.respond(scope, receive)
        await _send(send, status, content, extra)

    async def respond(self, scope: Scope, receive: Receive) -> Answered:
        """Return the status, body and further headers of the answer."""
        start = time.perf_counter()
        service, endpoint = self._service, self._endpoint
        extra: RawHeaders = _NO_MORE
        data = b""
        caller: Caller | None = None
        body: Any = None
        given: dict[str, str] = {}
        try:
            headers: RawHeaders = dict(scope["headers"])
            _check_host(service, headers)
            caller = _identify(service, headers, endpoint.scope, shared=endpoint.shared)
            given = _parameters(scope) if endpoint.parameters else {}
            if self._decoder is not None:
                data = await _read(service, receive, headers)
                body = _decode(self._decoder, data)
            caller.spend(len(body) if isinstance(body, list) else 1)
            answer = await endpoint.handle(Call(service, body, given, caller))
            status = 200 if isinstance(answer, list) else endpoint.status
            content = _encode(answer)
        except Refused as refusal:
            status, content, extra = _refusal(refusal)
        except _Answered as answered:
            status, content, extra = _problem(
                answered.status, answered.problem, answered.retry_after
            )
        finally:
            service.body_bytes -= len(data)
        if endpoint.scope == "admin" and caller is not None:
            details = {**given, **_details(body)}
            service.audit.note(caller.name, endpoint.handle.__name__, details, status)
        service.metrics.observe(endpoint.path, status, time.perf_counter() - start)
        return status, content, extra


def _details(body: Any) -> dict[str, Any]:
    """Return the body of a request for the audit log."""
    told = msgspec.to_builtins(body)
    if isinstance(told, dict):
        return told
    return {} if told is None else {"requests": told}


async def _send(send: Send, status: int, content: bytes, extra: RawHeaders) -> None:
    length = (b"content-length", b"%d" % len(content))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [length, _JSON_TYPE, *extra.items()],
        }
    )
    await send({"type": "http.response.body", "body": content})


def _parameters(scope: Scope) -> dict[str, str]:
    """Return the parameters of the query and, where a path has any, of the path."""
    return {**QueryParams(scope["query_string"]), **scope.get("path_params", {})}


async def _read(service: Service, receive: Receive, headers: RawHeaders) -> bytes:
    """Return the body; refuse it as soon as it is known to be too large.

    Its bytes are counted in `service.body_bytes`, for the caller to subtract.
    """
    kind = headers.get(b"content-type", b"").decode("latin-1")
    if kind != _JSON and kind.partition(";")[0].strip().lower() != _JSON:
        raise _Answered(
            415, "media_type", f"the body must be application/json, and say so; got {kind[:80]!r}"
        )
    largest = service.settings.max_body
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced[:19]) > largest:
        raise _too_large(largest)
    parts: list[bytes] = []
    size, more = 0, True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Answered(400, "disconnected", "the client went away")
            part = message.get("body", b"")
            size += len(part)
            service.body_bytes += len(part)
            if size > largest:
                raise _too_large(largest)
            if service.body_bytes > max(_MOST_BODY_BYTES, largest):
                raise Busy("too many large bodies wait already: try again shortly")
            parts.append(part)
            more = message.get("more_body", False)
    except BaseException:
        service.body_bytes -= size
        raise
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decode(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _Answered(422, "invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Answered(400, "malformed", f"the body is not JSON: {error}") from None


def _too_large(largest: int) -> _Answered:
    return _Answered(413, "too_large", f"the body may have at most {largest} bytes")


def _identify(service: Service, headers: RawHeaders, scope: str, *, shared: bool = False) -> Caller:
    """Return whose key this is; refuse one that lacks the scope, or has used up its rate.

    What is `shared` tells of all sessions: a key that is limited to some may not ask for it.
    """
    if service.keys is None:
        return ANYONE
    kind, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if kind.lower() != "bearer":
        raise _Answered(401, "unauthorised", "send a key: Authorization: Bearer lb_...")
    caller = service.keys.caller(key.strip())
    if caller is None:
        raise _Answered(401, "unauthorised", "this key is not one of the service's")
    if not caller.may(scope):
        raise _Answered(403, "forbidden", f"this key lacks the scope {scope!r}")
    if shared and caller.sessions:
        raise _Answered(
            403, "forbidden", f"this key is for sessions {caller.sessions!r}..., not for all"
        )
    wait = caller.wait()
    if wait > 0:
        raise _Answered(429, "rate", f"this key has used up its rate: wait {wait:.1f} s", wait)
    return caller


def _check_host(service: Service, headers: RawHeaders) -> None:
    """Without keys, a web page elsewhere must not reach a loopback service by a name of its own."""
    allowed = service.settings.allowed_hosts
    if service.keys is not None and not allowed:
        return
    host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
    name = host[0] if host[2].isdecimal() and host[0] else "".join(host)
    if allowed == "*" or is_loopback(name):
        return
    if name in [part.strip() for part in allowed.split(",")]:
        return
    raise _Answered(421, "host", f"this service does not answer to the host {name[:100]!r}")


def _json(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(content, status, headers, _JSON)


def _problem(status: int, problem: Problem, retry_after: float = 1.0) -> Answered:
    """Return the status, body and further headers that tell of a problem."""
    extra: RawHeaders = {}
    if status == 401:
        extra[b"www-authenticate"] = b"Bearer"
    if status in (429, 503):
        extra[b"retry-after"] = b"%d" % max(1, math.ceil(retry_after))
    return status, _encode(ErrorBody(problem, "unknown" if status == 504 else None)), extra


def _refusal(refusal: Refused) -> Answered:
    status = next((code for kind, code in STATUSES if isinstance(refusal, kind)), 422)
    message = refusal.message
    if isinstance(refusal, OutcomeUnknown):  # their own words may hold the database's address
        message = "the store did not say whether it committed: ask again with the same request id"
    elif isinstance(refusal, StoreUnavailable):
        message = "the store cannot be reached or did not commit: nothing was done; try again"
    return _problem(status, Problem(refusal.code, message))


def _error(
    status: int,
    problem: Problem,
    retry_after: float = 1.0,
    headers: Mapping[str, str] | None = None,
) -> Response:
    _, content, extra = _problem(status, problem, retry_after)
    more = {name.decode(): value.decode() for name, value in extra.items()}
    return _json(content, status, {**(headers or {}), **more})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    return _error(error.status_code, Problem("http", error.detail), headers=headers)


async def _fault(request: Request, error: Exception) -> Response:
    return _error(500, Problem("fault", "the service failed; its log says how"))


async def _health(request: Request) -> Response:
    return _json(_encode(Health("up")))


View: TypeAlias = Callable[[Request], Awaitable[Response]]


def _readiness(service: Service) -> View:
    async def readyz(request: Request) -> Response:
        if await service.ready():
            return _json(_encode(Health("ready")))
        reason = "draining" if service.draining else "store unavailable"
        return _json(_encode(Health(reason)), 503, {"retry-after": "1"})

    return readyz


def _metrics(service: Service) -> View:
    async def metrics(request: Request) -> Response:
        try:
            headers = dict(request.scope["headers"])
            _check_host(service, headers)
            _identify(service, headers, "read", shared=True).spend(1)
        except _Answered as answered:
            return _error(answered.status, answered.problem, answered.retry_after)
        service.metrics.waiting.set(service.writer.waiting)
        service.metrics.most_waiting.set(service.writer.most_waiting)
        try:
            totals = await service.writer.run(snapshot, urgent=True)
        except Refused:
            totals = None  # the store is down: say at least that
        service.metrics.store_works.set(service.writer.store_works)
        text = service.metrics.exposition(totals)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return metrics
