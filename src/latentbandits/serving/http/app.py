"""The ASGI app: translates between HTTP requests and the engine, and does nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from latentbandits.serving.errors import Refused
from latentbandits.serving.http.endpoints import ENDPOINTS, PLAY
from latentbandits.serving.http.messages import (
    Answered,
    Health,
    NotAdmitted,
    Problem,
    encode_json,
    problem_answer,
)
from latentbandits.serving.http.metrics import exposition, totals_as_metrics
from latentbandits.serving.http.pages import HEADERS, PAGES, PLAY_PAGES, document, reference
from latentbandits.serving.http.requests import (
    Handler,
    Requests,
    admit_reader,
    preflight,
    refusal_answer,
)
from latentbandits.serving.http.service import Service

Background: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""A task that runs in the event loop as long as the app does."""

_JSON = "application/json"


class App(Requests):
    """The service as an ASGI app, to be mounted in another one or run by itself.

    Give `lifespan` to the outer app, so that the store is closed when that ends. Otherwise the
    first request starts the service. `authenticated` says that the outer app lets only
    administrators reach admin endpoints, so that no key is needed unless there are keys.
    `timed=False` leaves it to the server to end the connections of slow clients.
    """

    def __init__(
        self,
        service: Service,
        beside: Background | None = None,
        *,
        authenticated: bool = False,
        timed: bool = True,
    ) -> None:
        self._beside = beside
        playing = service.settings.play
        endpoints = [e for e in ENDPOINTS if playing or e.path != PLAY]
        handlers = {
            (e.method, e.path): Handler(service, e, authenticated=authenticated) for e in endpoints
        }
        plain: dict[tuple[str, str], ASGIApp] = {
            at: one for at, one in handlers.items() if "{" not in at[1]
        }
        if service.settings.reward_origins:
            asked = partial(preflight, service)
            plain |= {("OPTIONS", e.path): asked for e in endpoints if e.by_token}
        super().__init__(service, plain, _routed(service, handlers, self.lifespan), timed=timed)

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """Start the service, and at the end commit what waits and close the store."""
        await self.service.start()
        task = None if self._beside is None else asyncio.create_task(self._beside())
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
            await self.service.stop()


def _routed(
    service: Service, handlers: Mapping[tuple[str, str], ASGIApp], lifespan: Any
) -> Starlette:
    """Return an app that finds the handlers by their paths, and has the pages too."""
    described = document()
    specification = encode_json(described)
    shown = reference(described).encode()
    paths: dict[str, dict[str, ASGIApp]] = {}
    for (method, path), handler in handlers.items():
        anything = path.replace("}", ":path}")  # an id may have slashes
        paths.setdefault(anything, {})[method] = handler
    routes: list[BaseRoute] = [
        *[
            Route(path, _ByMethod(methods), methods=list(methods))
            for path, methods in paths.items()
        ],
        Route("/healthz", _health),
        Route("/readyz", _readyz),
        Route("/metrics", _metrics),
        Route("/report", _report),
        Route("/openapi.json", lambda request: _json(specification)),
        Route("/docs", lambda request: Response(shown, 200, HEADERS, "text/html")),
        *(PLAY_PAGES if service.settings.play else ()),
        *PAGES,
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            HTTPException: _http_error,
            NotAdmitted: _refused,
            Refused: _refused,
            Exception: _fault,
        },
    )
    app.state.service = service
    app.router.redirect_slashes = False  # a redirect would use the client's Host header
    return app


class _ByMethod:
    def __init__(self, handlers: dict[str, ASGIApp]) -> None:
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._handlers[method](scope, receive, send)


def _json(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(content, status, headers, _JSON)


def _error(answered: Answered, headers: Mapping[str, str] | None = None) -> Response:
    status, content, extra = answered
    more = {name.decode(): value.decode() for name, value in extra.items()}
    return _json(content, status, {**(headers or {}), **more})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(problem_answer(error.status_code, Problem("http", error.detail)), error.headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, (Refused, NotAdmitted))
    return _error(refusal_answer(error))


async def _fault(request: Request, error: Exception) -> Response:
    return _error(problem_answer(500, Problem("fault", "the service failed; its log says how")))


async def _health(request: Request) -> Response:
    return _json(encode_json(Health("up")))


async def _readyz(request: Request) -> Response:
    service: Service = request.app.state.service
    if await service.ready():
        return _json(encode_json(Health("ready")))
    reason = "draining" if service.draining else "store unavailable"
    return _json(encode_json(Health(reason)), 503, {"retry-after": "1"})


def _read_by(request: Request) -> Service:
    """Return the service, if the caller may read about all sessions."""
    service: Service = request.app.state.service
    admit_reader(service, dict(request.scope["headers"]))
    return service


async def _metrics(request: Request) -> Response:
    service = _read_by(request)
    writer = service.writer
    waiting, most = writer.waiting, writer.most_waiting
    try:
        totals = await writer.run(totals_as_metrics, urgent=True)
    except Refused:
        totals = []  # the store is down: export the other metrics
    requests = service.metrics.collect(
        waiting=waiting, most_waiting=most, store_works=writer.store_works
    )
    text = exposition([*requests, *totals])
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


_REPORT_HEADERS = {
    **HEADERS,
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'none'",
}


async def _report(request: Request) -> Response:
    """Serve the page that the fit of the active model wrote; its styles and pictures are inside."""
    file = await _read_by(request).active_report()
    if file is None:
        problem = Problem("not_found", "the active model's folder has no report of its fit")
        return _error(problem_answer(404, problem))
    return FileResponse(file, headers=_REPORT_HEADERS)
