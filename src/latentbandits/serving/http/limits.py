"""Limits of a request that hold under any ASGI server: its head, its bytes and its time."""

from __future__ import annotations

import asyncio
import math
from typing import TypeAlias

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latentbandits.serving.http.messages import ErrorBody, Problem
from latentbandits.serving.settings import Settings

RawHeaders: TypeAlias = dict[bytes, bytes]
Answered: TypeAlias = tuple[int, bytes, RawHeaders]

MAX_HEADER_BYTES = 32 * 1024
MAX_HEADERS = 100
TOO_MANY_HEADERS = f"headers may have {MAX_HEADER_BYTES} bytes, {MAX_HEADERS} lines"
NOT_IN_TIME = "the request did not arrive in time"
_MOST_BODY_BYTES = 32 * 2**20  # bodies being read or answered; decoded, up to 16 times as much
_LATER = 1.0  # seconds after which a server that bounds this itself would have closed
_READING = ("GET", "HEAD")  # methods that change nothing
encode_json = msgspec.json.Encoder().encode


class NotAdmitted(Exception):  # noqa: N818 - an answer, not a fault
    """A request that HTTP alone refuses."""

    def __init__(self, status: int, code: str, message: str, retry_after: float = 1.0) -> None:
        self.status = status
        self.problem = Problem(code, message)
        self.retry_after = retry_after

    def answer(self) -> Answered:
        """Return the status, body and further headers that tell of it."""
        return problem_answer(self.status, self.problem, self.retry_after)


def problem_answer(status: int, problem: Problem, retry_after: float = 1.0) -> Answered:
    """Return the status, body and further headers that tell of a problem."""
    extra: RawHeaders = {}
    if status == 401:
        extra[b"www-authenticate"] = b"Bearer"
    if status in (429, 503):
        extra[b"retry-after"] = b"%d" % max(1, math.ceil(retry_after))
    if status == 408:  # the rest of the request may never come
        extra[b"connection"] = b"close"
    return status, encode_json(ErrorBody(problem, "unknown" if status == 504 else None)), extra


async def send_answer(send: Send, status: int, content: bytes, extra: RawHeaders) -> None:
    """Send a whole answer of JSON."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    if extra:
        headers += extra.items()
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class Limits:
    """An ASGI app around another: it refuses what is too large, too slow or ambiguous.

    A request needs one Host header, and no transfer coding but chunked: whoever reads it behind
    another server must find the same request. Its head and body are bounded in bytes, the bodies
    of all requests together too, and the client has a time to send and a time to read. Not
    `timed`: the server itself ends the connections of clients that are too slow.
    """

    def __init__(self, app: ASGIApp, settings: Settings, *, timed: bool = True) -> None:
        self._app = app
        self.settings = settings
        self.timed = timed
        self.body_bytes = 0  # bytes of the bodies of all requests under way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(self, receive, send)
        try:
            self._check_head(scope)
            await self._app(scope, request.receive, request.send)
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

    __slots__ = ("_limits", "_read_by", "_receive", "_send", "answering", "is_whole", "size")

    def __init__(self, limits: Limits, receive: Receive, send: Send) -> None:
        self._limits = limits
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
        message = await (self._received_in_time() if self._limits.timed else self._receive())
        if message["type"] == "http.request":
            self.is_whole = not message.get("more_body", False)
            part = len(message.get("body", b""))
            self.size += part
            self._limits.take(self.size, part)
        return message

    async def _received_in_time(self) -> Message:
        if self._read_by is None:
            timeout = self._limits.settings.body_timeout
            self._read_by = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(self._read_by):
                return await self._receive()
        except TimeoutError:
            raise NotAdmitted(408, "timeout", NOT_IN_TIME) from None

    async def send(self, message: Message) -> None:
        """Send a part of the answer, if the client reads it in time."""
        self.answering = True
        if not self._limits.timed:
            await self._send(message)
            return
        try:
            async with asyncio.timeout(self._limits.settings.send_timeout + _LATER):
                await self._send(message)
        except TimeoutError:
            raise _NotRead from None


def _ended(is_whole: bool, method: str) -> NotAdmitted:
    """Return what a request is told that the end of the service interrupts."""
    if not is_whole or method in _READING:
        return NotAdmitted(503, "busy", "the service ends: nothing was done")
    return NotAdmitted(504, "unknown", "the service ended meanwhile: ask again")
