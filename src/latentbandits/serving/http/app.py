"""HTTP: translates between requests and the engine, and does nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from latentbandits.serving.errors import Refused
from latentbandits.serving.http.admission import (
    JSON,
    NotAdmitted,
    check_admin,
    check_host,
    identify,
)
from latentbandits.serving.http.answering import Handler, encode_json, problem_answer
from latentbandits.serving.http.endpoints import ENDPOINTS, PLAY, Endpoint
from latentbandits.serving.http.messages import Health, Problem
from latentbandits.serving.http.metrics import snapshot
from latentbandits.serving.http.openapi import document
from latentbandits.serving.http.pages import HEADERS, PAGES, PLAY_PAGES
from latentbandits.serving.http.reference import page
from latentbandits.serving.http.service import Service

Background: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""A task that runs in the event loop as long as the app does."""


def create_app(
    service: Service, beside: Background | None = None, *, authenticated: bool = False
) -> Starlette:
    """Return the service as an ASGI app; `embed` makes one that can be mounted in another.

    `authenticated` says that an outer app lets administrators in: a key is not asked for then,
    unless there are keys.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        task = None if beside is None else asyncio.create_task(beside())
        yield
        if task is not None:
            task.cancel()
        await service.stop()

    playing = service.settings.play
    endpoints: list[tuple[Endpoint, ASGIApp]] = []
    for endpoint in ENDPOINTS:
        handler: ASGIApp = Handler(service, endpoint)
        if endpoint.scope == "admin" and not authenticated:
            handler = _AdminOnly(service, endpoint.path, handler)
        if playing or endpoint.path != PLAY:
            endpoints.append((endpoint, handler))
    routes: list[BaseRoute] = [
        Route(path, _ByMethod(handlers), methods=list(handlers))
        for path, handlers in _by_path(endpoints).items()
    ]
    described = document()
    specification = encode_json(described)
    reference = page(described).encode()
    routes += [
        Route("/healthz", _health),
        Route("/readyz", _readiness(service)),
        Route("/metrics", _metrics(service)),
        Route("/openapi.json", lambda request: _json(specification)),
        Route("/docs", lambda request: Response(reference, 200, HEADERS, "text/html")),
        *(PLAY_PAGES if playing else ()),
        *PAGES,
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _fault},
    )
    app.router.redirect_slashes = False  # a redirect would use the client's Host header
    return app


def _by_path(endpoints: Iterable[tuple[Endpoint, ASGIApp]]) -> dict[str, dict[str, ASGIApp]]:
    paths: dict[str, dict[str, ASGIApp]] = {}
    for endpoint, handler in endpoints:
        path = endpoint.path.replace("}", ":path}")  # an id may have slashes
        paths.setdefault(path, {})[endpoint.method] = handler
    return paths


class _ByMethod:
    def __init__(self, handlers: dict[str, ASGIApp]) -> None:
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._handlers[method](scope, receive, send)


class _AdminOnly:
    """An administrator's endpoint, which is not reached without keys unless it is allowed to be."""

    def __init__(self, service: Service, path: str, handler: ASGIApp) -> None:
        self._service = service
        self._path = path
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            check_admin(self._service, scope)
        except NotAdmitted as refused:
            self._service.metrics.observe(self._path, refused.status, 0.0)
            await _error(refused.status, refused.problem)(scope, receive, send)
            return
        await self._handler(scope, receive, send)


def _json(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(content, status, headers, JSON.decode())


def _error(
    status: int,
    problem: Problem,
    retry_after: float = 1.0,
    headers: Mapping[str, str] | None = None,
) -> Response:
    _, content, extra = problem_answer(status, problem, retry_after)
    more = {name.decode(): value.decode() for name, value in extra.items()}
    return _json(content, status, {**(headers or {}), **more})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    return _error(error.status_code, Problem("http", error.detail), headers=headers)


async def _fault(request: Request, error: Exception) -> Response:
    return _error(500, Problem("fault", "the service failed; its log says how"))


async def _health(request: Request) -> Response:
    return _json(encode_json(Health("up")))


View: TypeAlias = Callable[[Request], Awaitable[Response]]


def _readiness(service: Service) -> View:
    async def readyz(request: Request) -> Response:
        if await service.ready():
            return _json(encode_json(Health("ready")))
        reason = "draining" if service.draining else "store unavailable"
        return _json(encode_json(Health(reason)), 503, {"retry-after": "1"})

    return readyz


def _metrics(service: Service) -> View:
    async def metrics(request: Request) -> Response:
        try:
            headers = dict(request.scope["headers"])
            check_host(service, headers)
            identify(service, headers, "read", shared=True).spend(1)
        except NotAdmitted as answered:
            return _error(answered.status, answered.problem, answered.retry_after)
        service.metrics.waiting.set(service.writer.waiting)
        service.metrics.most_waiting.set(service.writer.most_waiting)
        try:
            totals = await service.writer.run(snapshot, urgent=True)
        except Refused:
            totals = None  # the store is down: export the other metrics
        service.metrics.store_works.set(service.writer.store_works)
        text = service.metrics.exposition(totals)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return metrics
