"""One request and its answer on a connection, spoken to the app in ASGI."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope

if TYPE_CHECKING:
    from latentbandits.serving.http.connection import Connection

_log = logging.getLogger(__name__)
_BODYLESS = (204, 304)
_READING = ("GET", "HEAD")  # methods that change nothing
_READ_AHEAD = 64 * 1024  # bytes of a body that are buffered before the app reads them
STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


class Responder(Protocol):
    """Answers a request with a status, a body and further headers."""

    async def respond(
        self, scope: Scope, receive: Receive
    ) -> tuple[int, bytes, dict[bytes, bytes]]: ...

    def start(
        self,
        headers: dict[bytes, bytes],
        data: bytes,
        reply: Callable[[int, bytes, dict[bytes, bytes]], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Answer a request whose body is there whole: call `reply`, or `fail`, once."""


class Head(NamedTuple):
    """The head of a request."""

    method: str
    path: str  # decoded
    raw_path: bytes
    query: bytes
    version: str  # HTTP version
    headers: list[tuple[bytes, bytes]]


def simple_answer(status: int, code: str, message: str) -> bytes:
    """Return the bytes of an error answer after which the connection is closed."""
    unknown = {"outcome": "unknown"} if status == 504 else {}
    body = json.dumps({"error": {"code": code, "message": message}, **unknown}).encode()
    retry = b"retry-after: 1\r\n" if status in (429, 503) else b""
    head = STATUS_LINES[status] + b"content-type: application/json\r\nconnection: close\r\n"
    return b"%s%scontent-length: %d\r\n\r\n%s" % (head, retry, len(body), body)


class Exchange:
    """A request whose body may still be arriving, and the state of its answer."""

    __slots__ = (
        "_awaited",
        "_body",
        "_chunked",
        "_connection",
        "_delivered",
        "_prepared",
        "_remaining",
        "_wants_continue",
        "arrived",
        "disconnected",
        "finished",
        "head",
        "keep_alive",
        "started",
    )

    def __init__(
        self, connection: Connection, head: Head, *, keep_alive: bool, wants_continue: bool
    ) -> None:
        self._connection = connection
        self.head = head
        self.keep_alive = keep_alive
        self.arrived = False  # whether the whole request has arrived
        self.started = False  # whether the answer was started
        self.finished = False
        self.disconnected = False
        self._wants_continue = wants_continue
        self._awaited: asyncio.Future[None] | None = None
        self._body: list[bytes] = []
        self._delivered = False  # whether the app has the whole body
        self._prepared = b""  # the head of the answer, not yet sent
        self._chunked = False
        self._remaining = 0

    # methods for the connection

    def take(self, part: bytes) -> None:
        """Keep a part of the body until the app asks for it."""
        if self.finished:
            return
        self._body.append(part)
        if self._connection.hold(len(part)) > _READ_AHEAD:
            self._connection.pause_reading()
        self._wake()

    def complete(self) -> None:
        """Take note that the whole request has come."""
        self.arrived = True
        self._wake()

    def disconnect(self) -> None:
        """Take note that the client has gone."""
        self.disconnected = True
        self._drop_body()
        self._wake()

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    def _take_body(self) -> bytes:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._drop_body()
        return body

    def _drop_body(self) -> None:
        if self._body:
            self._connection.hold(-sum(map(len, self._body)))
            self._body.clear()

    # methods for the app

    def start(self, responder: Responder, headers: dict[bytes, bytes]) -> None:
        """Have a request answered whose body is there whole, without a task of its own."""
        try:
            responder.start(headers, self._take_body(), self._reply, self._failed)
        except Exception as error:
            self._failed(error)

    async def run(self, app: ASGIApp, scope: Scope, direct: Responder | None = None) -> None:
        """Let the app answer; an app that fails is logged, a client that left is not.

        `direct` answers in its place, without the messages of ASGI.
        """
        try:
            if direct is not None:
                self._reply(*await direct.respond(scope, self.receive))
            else:
                await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._cancelled()
        except Exception as error:
            self._failed(error)
        else:
            if not self.finished and not self.disconnected:
                _log.error("no answer to %s %s", self.head.method, self.head.path)
                self._fail()

    def cancel(self, msg: object = None) -> None:
        """Answer that the service ends, in the next turn of the event loop (as a task would)."""
        asyncio.get_running_loop().call_soon(self._cancelled)

    def _cancelled(self) -> None:
        if self.started:
            return
        if not self.arrived or self.head.method in _READING:
            self._connection.refuse(503, "busy", "the service ends: nothing was done")
        else:
            self._connection.refuse(504, "unknown", "the service ended meanwhile: ask again")

    def _failed(self, error: BaseException) -> None:
        if not self.disconnected:
            told = "the app failed on %s %s"
            _log.error(told, self.head.method, self.head.path, exc_info=error)
        self._fail()

    def _fail(self) -> None:
        if self.started:
            self._connection.close()
        else:
            self._connection.refuse(500, "fault", "the service failed; its log says how")

    async def receive(self) -> Message:
        """Return the next part of the body, as ASGI has it."""
        if self._wants_continue and not self.disconnected:
            self._wants_continue = False
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        news = self._body or (self.arrived and not self._delivered)
        if not (news or self.disconnected or self.finished):
            if not self.arrived:
                self._connection.resume_reading()
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited
        if self.disconnected or self.finished:
            return {"type": "http.disconnect"}
        self._delivered = self.arrived
        return {"type": "http.request", "body": self._take_body(), "more_body": not self.arrived}

    async def send(self, message: Message) -> None:
        """Send a message of ASGI to the client."""
        if self._connection.is_write_paused:
            await self._connection.drained()
        if self.disconnected:
            return
        if not self.started:
            self._begin(message)
            return
        body: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if self.head.method == "HEAD":
            data = self._prepared
        elif self._chunked:
            data = self._prepared + (b"%x\r\n%s\r\n" % (len(body), body) if body else b"")
            data += b"" if more else b"0\r\n\r\n"
        else:
            data = self._prepared + body
            self._remaining -= len(body)
            if self._remaining < 0 or (self._remaining > 0 and not more):
                raise RuntimeError("the answer's length is not its content-length")
        self._prepared = b""
        if data:
            self._connection.write(data)
        if not more:
            self.end()

    def _reply(self, status: int, content: bytes, extra: dict[bytes, bytes]) -> None:
        """Send a whole answer at once."""
        if self.disconnected:
            return
        if not extra and self.arrived and self.keep_alive:
            self.started = True
            self._connection.write(
                b"%s%scontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                % (STATUS_LINES[status], self._connection.common_lines(), len(content), content)
            )
            self.end()
            return
        headers = [(b"content-type", b"application/json"), *extra.items()]
        headers.append((b"content-length", b"%d" % len(content)))
        self._begin({"status": status, "headers": headers})
        self._connection.write(self._prepared + content)
        self._prepared = b""
        self.end()

    def _begin(self, message: Message) -> None:
        """Prepare the head; it leaves together with the first part of the body."""
        status: int = message["status"]
        headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
        self._wants_continue = False
        parts = [STATUS_LINES[status]]
        length = None
        for name, value in (*self._connection.default_headers, *headers):
            if b"\r" in value or b"\n" in value:
                raise RuntimeError(f"the header {name!r} has a line break in it")
            parts += (name, b": ", value, b"\r\n")
            if name.lower() == b"content-length":
                length = int(value)
            elif name.lower() == b"connection" and value.lower() == b"close":
                self.keep_alive = False
        self.started = True
        if not self.arrived:  # the rest is not read, so the connection cannot be reused
            self.keep_alive = False
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        self._remaining = length or 0
        if length is None and self.head.method != "HEAD" and status not in _BODYLESS:
            self._chunked = True
            parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n")
        self._prepared = b"".join(parts)

    def end(self) -> None:
        """Mark the answer as sent."""
        self.finished = True
        self._drop_body()
        self._wake()
        self._connection.answered(self)
