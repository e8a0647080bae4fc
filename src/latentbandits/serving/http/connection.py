"""A connection: HTTP/1.1 by httptools, with limits of bytes and time in both directions.

Before a key was looked at, a connection holds at most its headers, 64 KiB of a body and what one
read brings. Everything that a client does not send or does not read in time ends its connection.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.server import ServerState

from latentbandits.serving.http.exchange import Exchange, Head, Responder, simple_answer
from latentbandits.serving.settings import Settings

_MAX_HEADER_BYTES = 32 * 1024
_MAX_HEADERS = 100
_MAX_PIPELINED = 64
_MAX_HELD = 64 * 2**20  # unread bytes of the bodies of all connections
_SEND_BUFFER = 128 * 1024
_IDLE_SECONDS = 75.0
_LINGER_SECONDS = 5.0  # time for a client that still sends to read its answer
_FOREVER = float("inf")


@lru_cache(maxsize=64)
def _parse_url(url: bytes) -> tuple[bytes, str, bytes]:
    """Return the path as it came, the path it stands for, and the query."""
    parsed = httptools.parse_url(url)
    raw = parsed.path or b"/"
    path = raw.decode("ascii")
    return raw, unquote(path) if "%" in path else path, parsed.query or b""


class Held:
    """The bytes of bodies that all connections hold together."""

    def __init__(self) -> None:
        self.bytes = 0


class Connection(asyncio.Protocol):
    """Reads requests one after the other; `overdue` is called from time to time by the server."""

    settings: Settings
    held: Held
    direct: Mapping[tuple[str, str], Responder]  # handlers that bypass the app's routing

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._app: Any = config.loaded_app
        self._loop = _loop or asyncio.get_running_loop()
        self._server = server_state
        self._app_state = app_state
        self._root_path = config.root_path
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._new_parser()
        self._exchange: Exchange | None = None  # the one that is being answered
        self._arriving: Exchange | None = None  # the one whose body is being read
        self._queue: deque[Exchange] = deque()  # pipelined ones
        self._new = False  # whether the exchange has not been started yet
        self._common: tuple[object, bytes] = (None, b"")
        self._holding = 0  # bytes of bodies in memory
        self._head_bytes = 0  # bytes of the arriving request before its body
        self._body_bytes = 0  # bytes of its body, with framing and trailers
        self._in_headers = True
        self._discarding = False
        self._ended = False  # the client has closed its side
        self._reading_paused = False
        self._drained: asyncio.Future[None] | None = None
        self._read_by = _FOREVER  # deadline for the client to send the rest of its request
        self._idle_by = _FOREVER
        self._write_by = _FOREVER  # deadline for the client to read its answer

    def _new_parser(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []

    # asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to read; refuse the connection if there are too many."""
        self._transport = transport
        self._server.connections.add(self)  # type: ignore[arg-type]
        sent = transport.get_extra_info("socket")
        if sent is not None:  # bound what the kernel buffers for a client that does not read
            sent.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        peer, sockname = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._peer = tuple(peer[:2]) if isinstance(peer, tuple) else None
        self._local_address = tuple(sockname[:2]) if isinstance(sockname, tuple) else None
        self._read_by = time.monotonic() + self.settings.header_timeout
        if len(self._server.connections) > self.settings.max_connections:
            self.refuse(503, "busy", "too many connections: try again shortly")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests under way, and give back the bytes that were held."""
        self._server.connections.discard(self)
        for exchange in (self._exchange, self._arriving, *self._queue):
            if exchange is not None and not exchange.finished:
                exchange.disconnect()
                self._server.tasks.discard(exchange)
        self._queue.clear()
        self.held.bytes -= self._holding
        self._holding = 0
        self.resume_writing()

    def eof_received(self) -> bool:
        """Close, unless requests that arrived whole are still to be answered."""
        self._ended = True
        return self._exchange is not None and self._arriving is None

    def pause_writing(self) -> None:
        """Set the time by which the client must read: too much is unread."""
        self._write_by = time.monotonic() + self.settings.send_timeout
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Continue writing: the client has read enough."""
        self._write_by = _FOREVER
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, within the bounds, and start a request that is new."""
        if self._discarding or self._transport.is_closing():
            return
        if self._idle_by != _FOREVER:
            self._idle_by = _FOREVER
            self._read_by = time.monotonic() + self.settings.header_timeout
        if self._in_headers:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEADER_BYTES + self._most_body():
                self._too_many_headers()
                return
        else:
            self._body_bytes += len(data)
            if self._body_bytes > self._most_body():
                self._too_much_body()
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.refuse(400, "malformed", "this is not an HTTP request")
        else:
            if self._in_headers and self._head_bytes > _MAX_HEADER_BYTES:
                self._too_many_headers()
        if self._new and self._exchange is not None:
            self._start(self._exchange)

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read the request again without its Upgrade header (RFC 9110, 7.8).

        httptools stops after the headers of such a request and does not read its body.
        """
        if self._discarding or self._transport.is_closing():
            return
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        if method == b"CONNECT":
            self.refuse(405, "http", "this service is no proxy")
            return
        lines = [b"%s %s HTTP/%s" % (method, self._url, version)]
        for name, value in self._headers:
            if name == b"connection":
                kept = [x for x in value.split(b",") if x.strip().lower() != b"upgrade"]
                value = b",".join(kept) or b"keep-alive"
            if name != b"upgrade":
                lines.append(name + b": " + value)
        self._new_parser()
        self._in_headers, self._head_bytes = True, 0
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _most_body(self) -> int:
        """Return the largest size of a body with its chunk sizes and trailers."""
        return 2 * self.settings.max_body + _MAX_HEADER_BYTES

    def _too_many_headers(self) -> None:
        self.refuse(431, "headers", f"headers may have {_MAX_HEADER_BYTES} bytes, {_MAX_HEADERS} "
                    "lines")  # fmt: skip

    def _too_much_body(self) -> None:
        if self._arriving is None or not self._arriving.started:
            self.refuse(413, "too_large",
                        f"the body may have at most {self.settings.max_body} bytes")  # fmt: skip
        else:
            self._linger()

    # httptools

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        if self._discarding:
            return
        self._url, self._headers = b"", []
        self._in_headers = True
        self._read_by = time.monotonic() + self.settings.header_timeout

    def on_url(self, url: bytes) -> None:
        """Keep a part of the address."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; trailers are dropped."""
        if self._in_headers:  # trailers are read and dropped
            if len(self._headers) == _MAX_HEADERS:
                self._too_many_headers()
                return
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Check the head of a request and make its exchange."""
        if self._discarding or self._transport.is_closing():
            return
        if self._head_bytes > _MAX_HEADER_BYTES:  # this may include other bytes of the same read
            size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
            if size > _MAX_HEADER_BYTES:
                self._too_many_headers()
                return
        if self._parser.should_upgrade():
            return
        self._in_headers = False
        self._head_bytes = self._body_bytes = 0
        self._read_by = time.monotonic() + self.settings.body_timeout
        fields = dict(self._headers)
        host = fields.get(b"host", b"")
        if not host or host.isspace() or len(fields) != len(self._headers):
            hosts = [value for name, value in self._headers if name == b"host"]
            if len(hosts) != 1 or not host.strip():
                self.refuse(400, "host", f"a request needs one Host header; this has {len(hosts)}"
                            + (", empty" if len(hosts) == 1 else ""))  # fmt: skip
                return
        try:
            raw_path, path, query = _parse_url(self._url)
            method = self._parser.get_method().decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            self.refuse(400, "malformed", "this is not the address of anything here")
            return
        version = self._parser.get_http_version()
        exchange = Exchange(
            self,
            Head(method, path, raw_path, query, version, self._headers),
            keep_alive=version != "1.0" and self._parser.should_keep_alive(),
            wants_continue=fields.get(b"expect", b"").lower() == b"100-continue",
        )
        self._arriving = exchange
        if self._exchange is None and not self._queue:
            self._exchange, self._new, self._fields = exchange, True, fields
            return
        self._queue.append(exchange)
        self.pause_reading()
        if len(self._queue) > _MAX_PIPELINED:
            self.refuse(429, "pipelined", f"at most {_MAX_PIPELINED} requests may wait for answers")

    def _scope(self, head: Head) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": self._local_address,
            "client": self._peer,
            "scheme": "http",
            "method": head.method,
            "root_path": self._root_path,
            "path": self._root_path + head.path,
            "raw_path": self._root_path.encode() + head.raw_path,
            "query_string": head.query,
            "headers": head.headers,
            "state": self._app_state.copy(),
        }

    def on_body(self, body: bytes) -> None:
        """Give a part of the body to the exchange."""
        if self._arriving is not None and not self._discarding:
            self._arriving.take(body)

    def on_message_complete(self) -> None:
        """Tell the exchange that its request has arrived completely."""
        if self._discarding or self._in_headers:  # an upgrade: see _ignore_upgrade
            return
        arrived, self._arriving = self._arriving, None
        self._read_by = _FOREVER
        self._in_headers, self._head_bytes = True, 0
        if arrived is not None:
            arrived.complete()

    # methods for exchanges

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of every answer."""
        return self._server.default_headers

    def common_lines(self) -> bytes:
        """Return the lines of `default_headers`, which the server replaces once a second."""
        headers = self._server.default_headers
        if self._common[0] is not headers:
            self._common = headers, b"".join([b"%s: %s\r\n" % pair for pair in headers])
        return self._common[1]

    def hold(self, size: int) -> int:
        """Count bytes of a body that wait here (or no longer); the bytes of this connection."""
        self._holding += size
        self.held.bytes += size
        if size > 0 and self.held.bytes > _MAX_HELD:
            self.refuse(503, "busy", "too many bodies are arriving at once: try again shortly")
        return self._holding

    def pause_reading(self) -> None:
        """Let the kernel keep what comes, until `resume_reading`."""
        if not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if self._reading_paused and not self._transport.is_closing():
            self._reading_paused = False
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is closing."""
        if not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_write_paused(self) -> bool:
        """Whether the client has too much to read."""
        return self._drained is not None

    async def drained(self) -> None:
        """Wait until the client has read enough."""
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def answered(self, exchange: Exchange) -> None:
        """Continue with the next request, if the client may send one."""
        self._server.total_requests += 1
        self._server.tasks.discard(exchange)
        self._exchange = None
        if not exchange.arrived:
            self._linger()
        elif not exchange.keep_alive:
            self.close()
        elif self._queue:
            self._loop.create_task(self._next())
        elif self._ended:
            self.close()
        else:
            self.resume_reading()
            if self._arriving is None:
                self._idle_by = time.monotonic() + _IDLE_SECONDS

    async def _next(self) -> None:
        """Start the next pipelined request once the client has read enough of the last answer."""
        await self.drained()
        if self._queue and self._exchange is None and not self._transport.is_closing():
            self._start(self._queue.popleft())

    def _start(self, exchange: Exchange) -> None:
        """Have a request answered: in a task of its own, unless it needs none."""
        whole = self._new and exchange.arrived
        self._exchange, self._new = exchange, False
        if exchange.disconnected:
            return
        head = exchange.head
        direct = self.direct.get((head.method, self._root_path + head.path))
        if whole and direct is not None:
            self._server.tasks.add(exchange)  # type: ignore[arg-type]
            exchange.start(direct, self._fields)
            return
        task = self._loop.create_task(exchange.run(self._app, self._scope(head), direct))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    # closing

    def refuse(self, status: int, code: str, message: str) -> None:
        """Answer without the app, and close."""
        if self._discarding or self._transport.is_closing():
            return
        for exchange in (self._exchange, self._arriving, *self._queue):
            if exchange is not None and not exchange.finished:
                exchange.disconnect()
        self._queue.clear()
        if self._exchange is not None and self._exchange.started:
            self.close()  # an answer is already partly sent
            return
        self.write(simple_answer(status, code, message))
        self._linger()

    def _linger(self) -> None:
        """Let the client read its answer; what it still sends is dropped unread."""
        self._discarding = True
        self._read_by = time.monotonic() + _LINGER_SECONDS
        self.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        """Close once what was written has been read, or `send_timeout` has passed."""
        if not self._transport.is_closing():
            self._write_by = min(self._write_by, time.monotonic() + self.settings.send_timeout)
            self._transport.close()

    def shutdown(self) -> None:
        """End the connection after the answer in progress, because the server ends."""
        if self._exchange is None:
            self.close()
        else:
            self._exchange.keep_alive = False

    def overdue(self, now: float) -> None:
        """End the connection if the client has not sent or read in time."""
        if now > self._write_by:
            self._transport.abort()
        elif now > self._read_by and not self._reading_paused:
            self._read_by = _FOREVER
            if self._discarding:
                self._transport.abort()
            elif self._arriving is not None and self._arriving.started:
                self.close()
            else:
                self.refuse(408, "timeout", "the request did not arrive in time")
        elif now > self._idle_by:
            self.close()
