"""Run the app under uvicorn, with limits on what an app cannot see, and a bounded shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections import deque
from types import FrameType
from typing import Any

import httptools
import uvicorn
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from latentbandits.serving.http.app import App, Background
from latentbandits.serving.http.messages import NotAdmitted
from latentbandits.serving.http.requests import MAX_HEADER_BYTES, NOT_IN_TIME, TOO_MANY_HEADERS
from latentbandits.serving.http.service import Service
from latentbandits.serving.settings import Settings

_SWITCH_SECONDS = 0.001  # switch interval between the two threads
_GRACE_SECONDS = 5  # for unfinished answers after the drain
_UNBEGUN_SECONDS = 4  # after the drain, what was not begun is refused
_LATEST_SECONDS = 9
_COLLECT = (20_000, 50, 100)  # thresholds of the garbage collector; cycles are rare
_IDLE_SECONDS = 75
_LINGER_SECONDS = 5.0  # time for a client that still sends to read its answer
_MAX_PIPELINED = 64
_SEND_BUFFER = 128 * 1024
_BACKLOG = 2048
_FOREVER = float("inf")
_log = logging.getLogger("latentbandits")


class Connection(HttpToolsProtocol):
    """A connection of uvicorn with limits on what an app cannot see.

    The head of a request, chunk sizes and trailers are bounded in bytes, and all that a client
    sends or reads in time: `overdue` is called from time to time. Bytes that are no request wait
    for the answers to the requests before them. A request to upgrade is answered in HTTP/1.1.
    """

    settings: Settings

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connected = transport.get_extra_info("socket")
        if connected is not None:  # bound what the kernel buffers for a client that does not read
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._unanswered: deque[RequestResponseCycle] = deque()  # the newest last
        self._deaf = False  # whether what comes is dropped unread
        self._arriving = False  # whether the newest request has a body that still comes
        self._unknown = 0  # bytes since the last that were known to be a head or a body
        self._read_by = self.loop.time() + self.settings.header_timeout
        self._write_by = _FOREVER

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self._unanswered:  # uvicorn tells the newest only
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)
        if self.headers:  # also trailers; the parser and this object keep each other alive
            self.headers.clear()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        if self._read_by == _FOREVER:
            self._read_by = self.loop.time() + self.settings.header_timeout
        self._unknown += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, "malformed", "this is not an HTTP request")
        if self._unknown > MAX_HEADER_BYTES:
            self._refuse(431, "headers", TOO_MANY_HEADERS)

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Read the request again without its Upgrade header (RFC 9110, 7.8).

        httptools stops after the head of such a request, and does not read its body.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self._refuse(405, "http", "this service is no proxy")
            return
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                kept = [x for x in value.split(b",") if x.strip().lower() != b"upgrade"]
                value = b",".join(kept) or b"keep-alive"
            if name != b"upgrade":
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._unknown = 0
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def on_headers_complete(self) -> None:
        if self._deaf or self.parser.should_upgrade():
            return
        super().on_headers_complete()
        while self._unanswered and self._unanswered[0].response_complete:
            self._unanswered.popleft()
        self._unanswered.append(self.cycle)
        self._arriving = True
        self._unknown = 0
        self._read_by = self.loop.time() + self.settings.body_timeout
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._end_after_answers()

    def on_body(self, body: bytes) -> None:
        self._unknown = 0
        if self._arriving:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._arriving:
            self._arriving = False
            self._unknown = 0
            self._read_by = _FOREVER
            super().on_message_complete()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Close, unless requests that arrived whole are still to be answered."""
        if not self._is_answering() or self._arriving:
            return None
        self._end_after_answers()
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_by = self.loop.time() + self.settings.send_timeout

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_by = _FOREVER

    def overdue(self, now: float) -> None:
        """End the connection if the client has not sent or read in time."""
        if self.transport.is_closing() and self._write_by == _FOREVER:
            self._write_by = now + self.settings.send_timeout
        if now > self._write_by or (now > self._read_by and self._deaf):
            self.transport.abort()
        elif now > self._read_by and not self.flow.read_paused:
            self._refuse(408, "timeout", NOT_IN_TIME)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _end_after_answers(self) -> None:
        """Drop what still comes, and close after the answer to the newest request."""
        self._deaf = True
        self._read_by = _FOREVER
        self.cycle.keep_alive = False

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Refuse the last request of the connection; earlier requests still get their answers."""
        if self._deaf or self.transport.is_closing():
            return
        if self._is_answering() and (self.pipeline or not self._arriving):
            self._end_after_answers()
            return
        told = not self._arriving  # a request whose body still comes may be answered already
        if self._is_answering():
            told = not self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._deaf = True
        self._read_by = self.loop.time() + _LINGER_SECONDS
        if told:
            _, content, extra = NotAdmitted(status, code, message).answer()
            extra |= {b"content-type": b"application/json", b"connection": b"close"}
            extra[b"content-length"] = b"%d" % len(content)
            lines = [b"%s: %s\r\n" % pair for pair in extra.items()]
            self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", content]))
        if self.transport.can_write_eof():  # the client, which may still send, can read its answer
            self.transport.write_eof()


class Server(uvicorn.Server):
    """A server that on SIGTERM reports not ready, waits `drain` seconds for proxies, then ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload_keys)
        await super().startup(sockets)
        for listening in sockets or ():
            host, port = listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            _log.info("listening on http://%s:%d (Ctrl+C ends it)", shown, port)

    def _reload_keys(self) -> None:
        if self._service.keys is not None:
            self._service.keys.reload(force=True)

    async def on_tick(self, counter: int) -> bool:
        """Close the connections whose client is too slow; called ten times a second."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            connection.overdue(now)  # type: ignore[union-attr]
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for unfinished answers; then refuse operations that have not begun, and answer the
        others that their outcome is unknown.
        """
        refuse = self._service.writer.refuse_unbegun
        asyncio.get_running_loop().call_later(_UNBEGUN_SECONDS, refuse)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the process at most `drain` + 9 seconds after the signal, even if something hangs."""
        drain = self._service.settings.drain
        if not self._service.draining:
            watchdog = threading.Timer(drain + _LATEST_SECONDS, _leave)
            watchdog.daemon = True
            watchdog.start()
        if self._service.draining or sig == signal.SIGINT:
            self._service.draining = True
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        self._service.draining = True
        asyncio.get_event_loop().call_later(drain, self._end)

    def _end(self) -> None:
        self.should_exit = True


def _leave() -> None:
    """End the process although something hangs; no answer was given before its commit."""
    _log.error("something hangs: the process ends without waiting for it")
    logging.shutdown()
    os._exit(1)


def bind(settings: Settings) -> list[socket.socket]:
    """Bind the service's address, before anything is opened or learned; ValueError if it is taken.

    A connection is refused until `serve` listens on it.
    """
    sockets = []
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            bound = socket.socket(family, kind, protocol)
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(address)
    except OSError as error:
        for bound in sockets:
            bound.close()
        raise _not_bound(settings, error) from None
    return sockets


def _not_bound(settings: Settings, error: OSError) -> ValueError:
    return ValueError(
        f"cannot listen on {settings.host}, port {settings.port}: {error.strerror}; choose "
        "another with --host or --port"
    )


def serve(service: Service, sockets: list[socket.socket], beside: Background | None = None) -> None:
    """Run until a signal ends it; `beside` runs along with it."""
    settings = service.settings
    try:
        for bound in sockets:
            bound.listen(_BACKLOG)
    except OSError as error:  # another process was quicker
        raise _not_bound(settings, error) from None
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # loaded modules stay: exclude them from garbage collection
    gc.set_threshold(*_COLLECT)
    protocol: Any = type("Protocol", (Connection,), {"settings": settings})
    config = uvicorn.Config(
        App(service, beside, timed=False),  # `Connection` ends those of slow clients
        http=protocol,
        ws="none",
        log_level=settings.log_level,
        access_log=False,
        proxy_headers=False,  # nothing depends on the client's address
        server_header=False,
        limit_concurrency=settings.max_connections + 1,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        backlog=_BACKLOG,
    )
    # The arrays of a decision are small: BLAS threads would slow it down.
    with threadpool_limits(1, user_api="blas"):
        Server(config, service).run(sockets)
