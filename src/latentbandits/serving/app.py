"""HTTP: translates between requests and the engine, and does nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from latentbandits.serving.endpoints import ENDPOINTS, Endpoint
from latentbandits.serving.errors import (
    Busy,
    Conflict,
    Invalid,
    NotFound,
    Refused,
    StoreUnavailable,
)
from latentbandits.serving.messages import ErrorBody, Health, Problem
from latentbandits.serving.metrics import snapshot
from latentbandits.serving.openapi import document
from latentbandits.serving.pages import PAGES
from latentbandits.serving.service import Service
from latentbandits.serving.settings import is_loopback

Background: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""What runs in the event loop as long as the app does."""

RawHeaders: TypeAlias = dict[bytes, bytes]

_JSON = "application/json"
_encode = msgspec.json.Encoder().encode
_STATUSES: tuple[tuple[type[Refused], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 422),
    (Busy, 503),
    (StoreUnavailable, 503),
)


class _Answered(Exception):  # noqa: N818 - an answer, not a fault
    """A request that HTTP alone refuses."""

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.problem = Problem(code, message)


def create_app(service: Service, beside: Background | None = None) -> Starlette:
    """The service as an ASGI app, for uvicorn or to be mounted in an app of yours.

    A mounted app's lifespan is not run by the outer one: call `service.start()` and
    `service.stop()` there.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        task = None if beside is None else asyncio.create_task(beside())
        yield
        if task is not None:
            task.cancel()
        await service.stop()

    routes: list[BaseRoute] = [
        Route(path, _by_method({e.method: _handler(service, e) for e in endpoints}),
              methods=[e.method for e in endpoints])
        for path, endpoints in _by_path().items()
    ]  # fmt: skip
    specification = _encode(document())
    routes += [
        Route("/healthz", _health),
        Route("/readyz", _readiness(service)),
        Route("/metrics", _metrics(service)),
        Route("/openapi.json", lambda request: _json(specification)),
        *PAGES,
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _fault},
    )


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def _by_path() -> dict[str, list[Endpoint]]:
    paths: dict[str, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace("{session}", "{session:path}")  # an id may have slashes
        paths.setdefault(path, []).append(endpoint)
    return paths


def _by_method(handlers: dict[str, Handler]) -> Handler:
    if len(handlers) == 1:
        return next(iter(handlers.values()))

    async def dispatch(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return dispatch


def _handler(service: Service, endpoint: Endpoint) -> Handler:
    decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
    latency = service.metrics.latency.labels(endpoint.path)
    requests = service.metrics.requests
    counters = {endpoint.status: requests.labels(endpoint.path, endpoint.status)}

    async def handle(request: Request) -> Response:
        start = time.perf_counter()
        try:
            headers = dict(request.scope["headers"])
            _check_host(service, headers)
            _check_key(service, headers, endpoint.scope)
            body = None if decoder is None else await _read(service, request, headers, decoder)
            given = {}
            if endpoint.parameters:
                given = {**request.query_params, **request.path_params}
            answer = await endpoint.handle(service, body, given)
            status = 200 if isinstance(answer, list) else endpoint.status
            response = _json(_encode(answer), status)
        except Refused as refusal:
            response = _refusal(refusal)
        except _Answered as answered:
            response = _error(answered.status, answered.problem)
        counter = counters.get(response.status_code)
        if counter is None:
            counter = requests.labels(endpoint.path, response.status_code)
            counters[response.status_code] = counter
        counter.inc()
        latency.observe(time.perf_counter() - start)
        return response

    return handle


async def _read(
    service: Service, request: Request, headers: RawHeaders, decoder: msgspec.json.Decoder[Any]
) -> Any:
    """The body as its type; refused as soon as it is known to be too large."""
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
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > largest:
                raise _too_large(largest)
            parts.append(part)
    except ClientDisconnect:
        raise _Answered(400, "disconnected", "the client went away") from None
    try:
        return decoder.decode(b"".join(parts))
    except msgspec.ValidationError as error:
        raise _Answered(422, "invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Answered(400, "malformed", f"the body is not JSON: {error}") from None


def _too_large(largest: int) -> _Answered:
    return _Answered(413, "too_large", f"the body may have at most {largest} bytes")


def _check_key(service: Service, headers: RawHeaders, scope: str) -> None:
    if service.keys is None:
        return
    kind, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if kind.lower() != "bearer":
        raise _Answered(401, "unauthorised", "send a key: Authorization: Bearer lb_...")
    scopes = service.keys.scopes(key.strip())
    if scopes is None:
        raise _Answered(401, "unauthorised", "this key is not one of the service's")
    if scope not in scopes and "admin" not in scopes:
        raise _Answered(403, "forbidden", f"this key lacks the scope {scope!r}")


def _check_host(service: Service, headers: RawHeaders) -> None:
    """Without keys, a web page elsewhere must not reach a loopback service by a name of its own."""
    allowed = service.settings.allowed_hosts
    if service.keys is not None and not allowed:
        return
    host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
    name = host[0] if host[2].isdecimal() and host[0] else "".join(host)
    if is_loopback(name) or name in [part.strip() for part in allowed.split(",")]:
        return
    raise _Answered(421, "host", f"this service does not answer to the host {name[:100]!r}")


def _json(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(content, status, headers, _JSON)


def _error(status: int, problem: Problem, headers: dict[str, str] | None = None) -> Response:
    extra = dict(headers or {})
    if status == 401:
        extra["www-authenticate"] = "Bearer"
    if status in (429, 503):
        extra["retry-after"] = "1"
    return _json(_encode(ErrorBody(problem)), status, extra)


def _refusal(refusal: Refused) -> Response:
    status = next((code for kind, code in _STATUSES if isinstance(refusal, kind)), 422)
    return _error(status, Problem(refusal.code, refusal.message))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    return _error(error.status_code, Problem("http", error.detail), headers)


async def _fault(request: Request, error: Exception) -> Response:
    return _error(500, Problem("fault", "the service failed; its log says how"))


async def _health(request: Request) -> Response:
    return _json(_encode(Health("up")))


def _readiness(service: Service) -> Handler:
    async def readyz(request: Request) -> Response:
        if await service.ready():
            return _json(_encode(Health("ready")))
        reason = "draining" if service.draining else "store unavailable"
        return _json(_encode(Health(reason)), 503, {"retry-after": "1"})

    return readyz


def _metrics(service: Service) -> Handler:
    async def metrics(request: Request) -> Response:
        try:
            headers = dict(request.scope["headers"])
            _check_host(service, headers)
            _check_key(service, headers, "read")
        except _Answered as answered:
            return _error(answered.status, answered.problem)
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
