"""A request from its first byte to its answer: its limits, who asks, its handler.

The limits of its head, its bytes and its time hold under any ASGI server.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
from latentbandits.serving.http.endpoints import Call, Endpoint, listed, work_of
from latentbandits.serving.http.keys import ANYONE, BEARER, Caller
from latentbandits.serving.http.messages import (
    Answered,
    ErrorBody,
    NotAdmitted,
    Problem,
    RawHeaders,
    encode_json,
    problem_answer,
)
from latentbandits.serving.http.metrics import BUCKETS
from latentbandits.serving.http.service import Service
from latentbandits.serving.settings import is_loopback

STATUSES: tuple[tuple[type[Refused], int], ...] = (
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 422),
    (Busy, 503),
    (OutcomeUnknown, 504),
    (StoreUnavailable, 503),
)
MAX_HEADER_BYTES = 32 * 1024
MAX_HEADERS = 100
TOO_MANY_HEADERS = f"headers may have {MAX_HEADER_BYTES} bytes, {MAX_HEADERS} lines"
NOT_IN_TIME = "the request did not arrive in time"
_MOST_BODY_BYTES = 32 * 2**20  # bodies being read or answered; decoded, up to 16 times as much
_LATER = 1.0  # seconds after which a server that bounds this itself would have closed
_READING = ("GET", "HEAD")  # methods that change nothing
_JSON = b"application/json"
_NO_MORE: RawHeaders = {}
_MOST_TOKEN_BYTES = 16 * 2**10  # of a body that is read before its sender is known
_FORWARDED = (b"forwarded", b"via", b"x-forwarded-", b"x-real-ip")  # begin headers of proxies


async def send_answer(send: Send, status: int, content: bytes, extra: RawHeaders) -> None:
    """Send a whole answer of JSON."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    if extra:
        headers += extra.items()
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class Requests:
    """An ASGI app that answers by `handlers`, given by method and path, or by another app.

    It refuses what is too large, too slow or ambiguous. A request needs one Host header, and no
    transfer coding but chunked: whoever reads it behind another server must find the same request.
    Its head and body are bounded in bytes, the bodies of all requests together too, and the client
    has a time to send and a time to read. `timed=False` leaves it to the server to end the
    connections of slow clients. The first request in an event loop starts the service.
    """

    def __init__(
        self,
        service: Service,
        handlers: Mapping[tuple[str, str], ASGIApp],
        otherwise: ASGIApp,
        *,
        timed: bool = True,
    ) -> None:
        self.service = service
        self.settings = service.settings
        self.timed = timed
        self.body_bytes = 0  # bytes of the bodies of all requests under way
        self._handlers = handlers
        self._otherwise = otherwise
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that the service works for

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._otherwise(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            await self.service.start()
        request = _Request(self, receive, send)
        try:
            self._check_head(scope)
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            handler = self._handlers.get((scope["method"], path), self._otherwise)
            await handler(scope, request.receive, request.send)
        except NotAdmitted as refusal:
            if request.answering:
                raise
            await send_answer(request.send, *refusal.answer())
        except _NotRead:
            pass  # the server finds the answer unfinished, and closes
        except asyncio.CancelledError:  # the server ends
            if request.answering:
                raise
            await send_answer(send, *_ended(request.is_whole, scope["method"]).answer())
        finally:
            self.body_bytes -= request.size

    def _check_head(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        size, hosts = len(scope["query_string"]) + len(scope["path"]), []
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"host":
                hosts.append(value)
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                told = value.decode("latin-1")[:80]
                raise NotAdmitted(
                    501, "transfer_encoding", f"a body may be chunked, in no other coding: {told!r}"
                )
            elif name == b"content-length" and value.isdigit():
                self._check_size(int(value[:19]))
        if size > MAX_HEADER_BYTES or len(headers) > MAX_HEADERS:
            raise NotAdmitted(431, "headers", TOO_MANY_HEADERS)
        if len(hosts) != 1 or not hosts[0].strip():
            empty = ", empty" if len(hosts) == 1 else ""
            raise NotAdmitted(
                400, "host", f"a request needs one Host header; this has {len(hosts)}{empty}"
            )

    def _check_size(self, size: int) -> None:
        largest = self.settings.max_body
        if size > largest:
            raise NotAdmitted(413, "too_large", f"the body may have at most {largest} bytes")

    def take(self, size: int, part: int) -> None:
        """Count a part of a body of which `size` bytes have come; refuse what is too much."""
        self.body_bytes += part
        self._check_size(size)
        if self.body_bytes > max(_MOST_BODY_BYTES, self.settings.max_body):
            raise NotAdmitted(503, "busy", "too many large bodies wait already: try again shortly")


class _NotRead(Exception):  # noqa: N818 - the client's doing, not a fault
    """The client did not read its answer in time."""


class _Request:
    """Messages that the app receives and sends for one request."""

    __slots__ = ("_read_by", "_receive", "_requests", "_send", "answering", "is_whole", "size")

    def __init__(self, requests: Requests, receive: Receive, send: Send) -> None:
        self._requests = requests
        self._receive = receive
        self._send = send
        self._read_by: float | None = None  # time of the event loop
        self.size = 0  # bytes of the body that have come
        self.is_whole = False  # whether the body has come to its end
        self.answering = False

    async def receive(self) -> Message:
        """Return the next part of the body, if it comes in time."""
        if self.is_whole:  # the next message tells that the client has gone
            return await self._receive()
        message = await (self._received_in_time() if self._requests.timed else self._receive())
        if message["type"] == "http.request":
            self.is_whole = not message.get("more_body", False)
            part = len(message.get("body", b""))
            self.size += part
            self._requests.take(self.size, part)
        return message

    async def _received_in_time(self) -> Message:
        if self._read_by is None:
            timeout = self._requests.settings.body_timeout
            self._read_by = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(self._read_by):
                return await self._receive()
        except TimeoutError:
            raise NotAdmitted(408, "timeout", NOT_IN_TIME) from None

    def send(self, message: Message) -> Awaitable[None]:
        """Send a part of the answer, if the client reads it in time."""
        self.answering = True
        return self._sent_in_time(message) if self._requests.timed else self._send(message)

    async def _sent_in_time(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._requests.settings.send_timeout + _LATER):
                await self._send(message)
        except TimeoutError:
            raise _NotRead from None


def _ended(is_whole: bool, method: str) -> NotAdmitted:
    """Return the answer to a request that the end of the service interrupts."""
    if not is_whole or method in _READING:
        return NotAdmitted(503, "busy", "the service ends: nothing was done")
    return NotAdmitted(504, "unknown", "the service ended meanwhile: ask again")


class Handler:
    """An endpoint as an ASGI app: from the body's bytes to the answer's."""

    def __init__(self, service: Service, endpoint: Endpoint, *, authenticated: bool) -> None:
        self._service = service
        self._endpoint = endpoint
        self._needs_admin = endpoint.scope == "admin" and not authenticated
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)
        self._counts = service.metrics.routes[endpoint.path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        service, endpoint = self._service, self._endpoint
        caller: Caller | None = None
        content: bytes | None = None
        body: Any = None
        captured: dict[str, str] = {}
        answer: Any
        headers: RawHeaders = dict(scope["headers"])
        try:
            _check_host(service, headers)
            if endpoint.by_token and _may_have_token(headers):
                content = await self._content(headers, receive)
                if b'"token"' in content:
                    body = self._checked(headers, content)
                    caller = self._by_token(body)
            if self._needs_admin:
                _check_admin(service, headers, scope.get("client"))
            if caller is None:
                caller = _caller(service, headers, endpoint.scope, shared=endpoint.shared)
            if endpoint.parameters:
                captured = _parameters(endpoint, scope)
            if body is None and self._decoder is not None:
                if content is None:
                    content = await self._content(headers, receive)
                body = self._checked(headers, content)
            if service.keys is not None:
                caller.spend(work_of(body))
            answer = await endpoint.handle(Call(service, body, captured, caller))
        except (Refused, NotAdmitted) as refusal:
            answer = refusal
        status, content, extra = self._answered(answer)
        if endpoint.by_token and b"origin" in headers:
            extra = extra | _allowed_origin(service, headers)
        self._count(status, time.perf_counter() - start)
        if endpoint.scope == "admin" and caller is not None:
            details = {**captured, **_details(body)}
            service.audit.note(caller.name, endpoint.handle.__name__, details, status)
        await send_answer(send, status, content, extra)

    def _count(self, status: int, seconds: float) -> None:
        """Count a request and its time. Only the event loop does, so no lock is needed."""
        counts = self._counts
        counts.statuses[status] = counts.statuses.get(status, 0) + 1
        counts.within[bisect_left(BUCKETS, seconds)] += 1
        counts.seconds += seconds

    async def _content(self, headers: RawHeaders, receive: Receive) -> bytes:
        """Return the body as it came, if it is of a media type that can be read."""
        kind = _media_type(headers)
        if kind != _JSON and not (self._endpoint.by_token and kind == b"text/plain"):
            told = headers.get(b"content-type", b"").decode("latin-1")[:80]
            raise NotAdmitted(
                415, "media_type", f"the body must be application/json, and say so; got {told!r}"
            )
        return await _read(receive)

    def _checked(self, headers: RawHeaders, content: bytes) -> Any:
        """Return the checked body."""
        assert self._decoder is not None
        body = _decoded(self._decoder, content)
        if _media_type(headers) != _JSON and any(one.token is None for one in listed(body)):
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
        """Return an answer or a refusal as it is sent; a list can hold both."""
        if isinstance(answer, (Refused, NotAdmitted)):
            return refusal_answer(answer)
        if isinstance(answer, list):
            told = [
                ErrorBody(Problem(one.code, one.message)) if isinstance(one, Refused) else one
                for one in answer
            ]
            return 200, encode_json(told), _NO_MORE
        return self._endpoint.status, encode_json(answer), _NO_MORE


def _media_type(headers: RawHeaders) -> bytes:
    told = headers.get(b"content-type", b"")
    return told if told == _JSON else told.partition(b";")[0].strip().lower()


def _may_have_token(headers: RawHeaders) -> bool:
    """Return whether a request has no key, and a body so small that it is read without one."""
    length = headers.get(b"content-length", b"")
    small = length.isdigit() and int(length[:19]) <= _MOST_TOKEN_BYTES
    return small and b"authorization" not in headers


async def preflight(service: Service, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a browser that asks whether a page may send a reward as JSON."""
    extra = _allowed_origin(service, dict(scope["headers"]))
    if extra:
        extra |= {
            b"access-control-allow-methods": b"POST",
            b"access-control-allow-headers": b"content-type",
            b"access-control-max-age": b"600",
        }
    await send_answer(send, 200, b"{}", extra)


def _allowed_origin(service: Service, headers: RawHeaders) -> RawHeaders:
    """Return the headers that let a page read the answer, if the settings allow its origin."""
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


def admit_reader(service: Service, headers: RawHeaders) -> None:
    """Refuse a caller who may not read about all sessions; count the request of others."""
    _check_host(service, headers)
    _caller(service, headers, "read", shared=True).spend(1)


def _caller(service: Service, headers: RawHeaders, scope: str, *, shared: bool) -> Caller:
    """Return whose key this is; refuse one that lacks the scope, or has used up its rate.

    A `shared` endpoint shows all sessions, so it refuses keys that are limited to some.
    """
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


def _is_forwarded(name: bytes) -> bool:
    return name.startswith(_FORWARDED)


def _check_admin(service: Service, headers: RawHeaders, peer: tuple[str, int] | None) -> None:
    """Refuse an administrator's request where there are no keys, unless `insecure_admin` is set.

    Even then the request must come from this machine, to a name of this machine, and by no proxy.
    """
    if service.keys is not None:
        return  # `_caller` asks for one
    local = peer is not None and is_loopback(peer[0]) and is_loopback(_host(headers))
    if not service.settings.insecure_admin:
        told = "or, to try things on this machine, start it with --insecure-admin"
    elif not local or any(map(_is_forwarded, headers)):
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


def refusal_answer(refusal: Refused | NotAdmitted) -> Answered:
    """Return the status, body and further headers that tell of a refusal."""
    if isinstance(refusal, NotAdmitted):
        return refusal.answer()
    status = next((code for kind, code in STATUSES if isinstance(refusal, kind)), 422)
    message = refusal.message
    if isinstance(refusal, OutcomeUnknown):  # its message may contain the database's address
        message = "the store did not say whether it committed: ask again with the same request id"
    elif isinstance(refusal, StoreUnavailable):
        message = "the store cannot be reached or did not commit: nothing was done; try again"
    return problem_answer(status, Problem(refusal.code, message))
