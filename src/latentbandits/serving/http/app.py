"""The ASGI app: translates between HTTP requests and the engine, and does nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
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
from latentbandits.serving.http.endpoints import (
    ENDPOINTS,
    PLAY,
    Call,
    Endpoint,
    listed,
    work_of,
)
from latentbandits.serving.http.keys import ANYONE, BEARER, Caller
from latentbandits.serving.http.limits import (
    Answered,
    Limits,
    NotAdmitted,
    RawHeaders,
    encode_json,
    problem_answer,
    send_answer,
)
from latentbandits.serving.http.messages import Health, Problem
from latentbandits.serving.http.metrics import snapshot
from latentbandits.serving.http.pages import HEADERS, PAGES, PLAY_PAGES, document, reference
from latentbandits.serving.http.service import Service
from latentbandits.serving.settings import is_loopback

Background: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""A task that runs in the event loop as long as the app does."""

STATUSES: tuple[tuple[type[Refused], int], ...] = (
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 422),
    (Busy, 503),
    (OutcomeUnknown, 504),
    (StoreUnavailable, 503),
)
_JSON = b"application/json"
_NO_MORE: RawHeaders = {}
_MOST_TOKEN_BYTES = 16 * 2**10  # of a body that is read before its sender is known
_FORWARDED = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"))  # by a proxy


class App:
    """The service as an ASGI app, to be mounted in another one or run by itself.

    Give `lifespan` to the outer app, so that the store is closed when that ends. An outer app that
    does not is served too: then the first request starts the service. `authenticated` says that
    the outer app lets administrators in: a key is not asked for then, unless there are keys. Not
    `timed`: the server ends the connections of slow clients, and the app need not.
    """

    def __init__(
        self,
        service: Service,
        beside: Background | None = None,
        *,
        authenticated: bool = False,
        timed: bool = True,
    ) -> None:
        self.service = service
        self._beside = beside
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that the service works for
        playing = service.settings.play
        endpoints = [e for e in ENDPOINTS if playing or e.path != PLAY]
        handlers = {
            (e.method, e.path): _Handler(service, e, authenticated=authenticated) for e in endpoints
        }
        self._plain: dict[tuple[str, str], ASGIApp] = {
            at: one for at, one in handlers.items() if "{" not in at[1]
        }
        if service.settings.reward_origins:
            allowed = {("OPTIONS", e.path): _Preflight(service) for e in endpoints if e.by_token}
            self._plain |= allowed
        self._routed = _routed(service, handlers, self.lifespan)
        self._limited = Limits(self._dispatch, service.settings, timed=timed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._routed(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            await self.service.start()
        await self._limited(scope, receive, send)

    def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer by the handler of an address without parameters; the others are routed."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        handler: ASGIApp = self._plain.get((scope["method"], path), self._routed)
        return handler(scope, receive, send)

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


class _Handler:
    """An endpoint as an ASGI app: from the body's bytes to the answer's."""

    def __init__(self, service: Service, endpoint: Endpoint, *, authenticated: bool) -> None:
        self._service = service
        self._endpoint = endpoint
        self._needs_admin = endpoint.scope == "admin" and not authenticated
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        service, endpoint = self._service, self._endpoint
        caller: Caller | None = None
        body: Any = None
        captured: dict[str, str] = {}
        answer: Any
        headers: RawHeaders = dict(scope["headers"])
        try:
            if endpoint.by_token and _may_have_token(headers):
                _check_host(service, headers)
                body = await self._body(headers, receive)
                caller = self._by_token(body)
            if self._needs_admin:
                _check_admin(service, headers, scope.get("client"))
            if caller is None:
                caller = _admitted(service, headers, endpoint.scope, shared=endpoint.shared)
            if endpoint.parameters:
                captured = _parameters(endpoint, scope)
            if body is None:
                body = await self._body(headers, receive)
            if service.keys is not None:
                caller.spend(work_of(body))
            answer = await endpoint.handle(Call(service, body, captured, caller))
        except (Refused, NotAdmitted) as refusal:
            answer = refusal
        status, content, extra = self._answered(answer)
        if endpoint.by_token:
            extra = extra | _allowed_origin(service, headers)
        service.metrics.observe(endpoint.path, status, time.perf_counter() - start)
        if endpoint.scope == "admin" and caller is not None:
            details = {**captured, **_details(body)}
            service.audit.note(caller.name, endpoint.handle.__name__, details, status)
        await send_answer(send, status, content, extra)

    async def _body(self, headers: RawHeaders, receive: Receive) -> Any:
        """Return the checked body; None for an endpoint without one."""
        if self._decoder is None:
            return None
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        plain = self._endpoint.by_token and kind == b"text/plain"
        if kind != _JSON and not plain:
            told = headers.get(b"content-type", b"").decode("latin-1")[:80]
            raise NotAdmitted(
                415, "media_type", f"the body must be application/json, and say so; got {told!r}"
            )
        body = _decoded(self._decoder, await _read(receive))
        if plain and any(request.token is None for request in listed(body)):
            raise NotAdmitted(
                415, "media_type", "without a reward token the body must be application/json"
            )
        return body

    def _by_token(self, body: Any) -> Caller | None:
        """Return the caller whom the tokens of all requests let in; None if one has none."""
        requests = listed(body)
        if any(request.token is None for request in requests):
            return None
        for request in requests:
            self._service.tokens.check(request.decision_id, request.token)
        return BEARER

    def _answered(self, answer: Any) -> Answered:
        """Return an answer or a refusal as it is sent."""
        if isinstance(answer, NotAdmitted):
            return answer.answer()
        if isinstance(answer, Refused):
            return _refusal(answer)
        status = 200 if isinstance(answer, list) else self._endpoint.status
        return status, encode_json(answer), _NO_MORE


def _may_have_token(headers: RawHeaders) -> bool:
    """Return whether a request has no key, and a body so small that it is read without one."""
    length = headers.get(b"content-length", b"")
    small = length.isdigit() and int(length[:19]) <= _MOST_TOKEN_BYTES
    return small and b"authorization" not in headers


class _Preflight:
    """The answer to a browser that asks whether a page may send a reward as JSON."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        extra = _allowed_origin(self._service, dict(scope["headers"]))
        if extra:
            extra |= {
                b"access-control-allow-methods": b"POST",
                b"access-control-allow-headers": b"content-type",
                b"access-control-max-age": b"600",
            }
        await send_answer(send, 200, b"{}", extra)


def _allowed_origin(service: Service, headers: RawHeaders) -> RawHeaders:
    """Return the headers that let a page read the answer, if its origin is one of the settings."""
    origin = headers.get(b"origin")
    allowed = service.settings.reward_origins
    if origin is None or not allowed:
        return _NO_MORE
    if allowed != "*" and origin.decode("latin-1") not in [o.strip() for o in allowed.split(",")]:
        return _NO_MORE
    return {b"access-control-allow-origin": origin, b"vary": b"origin"}


async def _read(receive: Receive) -> bytes:
    """Return the body of a request."""
    message = await receive()
    parts = [message.get("body", b"")]
    while message.get("more_body", False):
        message = await receive()
        parts.append(message.get("body", b""))
    if message["type"] == "http.disconnect":
        raise NotAdmitted(400, "disconnected", "the client went away")
    data: bytes = parts[0] if len(parts) == 1 else b"".join(parts)
    return data


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    """Return the body as its type; 400 if it is not JSON, 422 if it is of another type."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise NotAdmitted(422, "invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAdmitted(400, "malformed", f"the body is not JSON: {error}") from None


def _admitted(service: Service, headers: RawHeaders, scope: str, *, shared: bool = False) -> Caller:
    """Return whose key this is; refuse one that lacks the scope, or has used up its rate.

    A `shared` endpoint tells of all sessions: a key that is limited to some is refused.
    """
    _check_host(service, headers)
    if service.keys is None:
        return ANYONE
    kind, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if kind.lower() != "bearer":
        raise NotAdmitted(401, "unauthorised", "send a key: Authorization: Bearer lb_...")
    caller = service.keys.caller(key.strip())
    if caller is None:
        raise NotAdmitted(401, "unauthorised", "this key is not one of the service's")
    if not caller.may(scope):
        raise NotAdmitted(403, "forbidden", f"this key lacks the scope {scope!r}")
    if shared and caller.sessions:
        raise NotAdmitted(
            403, "forbidden", f"this key is for sessions {caller.sessions!r}..., not for all"
        )
    wait = caller.wait()
    if wait > 0:
        raise NotAdmitted(429, "rate", f"this key has used up its rate: wait {wait:.1f} s", wait)
    return caller


def _check_host(service: Service, headers: RawHeaders) -> None:
    """Refuse unknown hosts if there are no keys, against DNS rebinding by web pages."""
    allowed = service.settings.allowed_hosts
    if service.keys is not None and not allowed:
        return
    name = _host(headers)
    if allowed == "*" or is_loopback(name):
        return
    if name in [part.strip() for part in allowed.split(",")]:
        return
    raise NotAdmitted(421, "host", f"this service does not answer to the host {name[:100]!r}")


def _host(headers: RawHeaders) -> str:
    """Return the name in the Host header, without a port."""
    host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
    return host[0] if host[2].isdecimal() and host[0] else "".join(host)


def _check_admin(service: Service, headers: RawHeaders, peer: tuple[str, int] | None) -> None:
    """Refuse administrators' requests if there are no keys, but for those that `insecure_admin`
    lets in: from this machine, to a name of this machine, and not forwarded by a proxy.
    """
    if service.keys is not None:
        return  # `_admitted` asks for one
    _check_host(service, headers)
    local = peer is not None and is_loopback(peer[0]) and is_loopback(_host(headers))
    if not service.settings.insecure_admin:
        told = "or, to try things on this machine, start it with --insecure-admin"
    elif not local or not headers.keys().isdisjoint(_FORWARDED):
        told = "--insecure-admin lets in only what comes from this machine, and by no proxy"
    else:
        return
    raise NotAdmitted(
        403,
        "forbidden",
        "this needs an admin key, and the service has no keys: make one (`latentbandits key admin "
        f"--keys keys.toml --scopes admin`) and start the service with --keys keys.toml; {told}",
    )


def _details(body: Any) -> dict[str, Any]:
    """Return the body of a request for the audit log."""
    told = msgspec.to_builtins(body)
    if isinstance(told, dict):
        return told
    return {} if told is None else {"requests": told}


def _parameters(endpoint: Endpoint, scope: Scope) -> dict[str, str]:
    """Return the parameters of the query and of the path.

    A parameter that the endpoint does not have is refused, for it is likely a slip.
    """
    known = [one.name for one in endpoint.parameters if one.place == "query"]
    values: dict[str, str] = {}
    for name, value in QueryParams(scope["query_string"]).multi_items():
        if name not in known:
            taken = " and ".join(f"`{one}`" for one in known) or "none"
            raise Invalid(f"there is no parameter {name[:50]!r} here; this request takes {taken}")
        if name in values:
            raise Invalid(f"the parameter `{name}` is given more than once: give it once")
        values[name] = value
    return {**values, **scope.get("path_params", {})}


def _refusal(refusal: Refused) -> Answered:
    status = next((code for kind, code in STATUSES if isinstance(refusal, kind)), 422)
    message = refusal.message
    if isinstance(refusal, OutcomeUnknown):  # its message may contain the database's address
        message = "the store did not say whether it committed: ask again with the same request id"
    elif isinstance(refusal, StoreUnavailable):
        message = "the store cannot be reached or did not commit: nothing was done; try again"
    return problem_answer(status, Problem(refusal.code, message))


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
        Route("/readyz", _readiness(service)),
        Route("/metrics", _metrics(service)),
        Route("/openapi.json", lambda request: _json(specification)),
        Route("/docs", lambda request: Response(shown, 200, HEADERS, "text/html")),
        *(PLAY_PAGES if service.settings.play else ()),
        *PAGES,
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_error, Exception: _fault},
    )
    app.router.redirect_slashes = False  # a redirect would use the client's Host header
    return app


class _ByMethod:
    def __init__(self, handlers: dict[str, ASGIApp]) -> None:
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._handlers[method](scope, receive, send)


def _json(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(content, status, headers, _JSON.decode())


def _error(answered: Answered, headers: Mapping[str, str] | None = None) -> Response:
    status, content, extra = answered
    more = {name.decode(): value.decode() for name, value in extra.items()}
    return _json(content, status, {**(headers or {}), **more})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(problem_answer(error.status_code, Problem("http", error.detail)), error.headers)


async def _fault(request: Request, error: Exception) -> Response:
    return _error(problem_answer(500, Problem("fault", "the service failed; its log says how")))


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
            _admitted(service, headers, "read", shared=True).spend(1)
        except NotAdmitted as refusal:
            return _error(refusal.answer())
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
