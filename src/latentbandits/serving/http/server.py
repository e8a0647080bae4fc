"""uvicorn, made patient with good clients and impatient with slow ones."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import sys
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from latentbandits.serving.http.app import Background, create_app
from latentbandits.serving.http.service import Service
from latentbandits.serving.settings import Settings

_MAX_HEADER_BYTES = 64 * 1024
_SWITCH_SECONDS = 0.001  # how long one thread may keep the other from the interpreter
_GRACE_SECONDS = 8
_COLLECT = (20_000, 50, 100)  # objects made until the collector looks for cycles: there are few
_log = logging.getLogger(__name__)


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose requests must arrive in time and size, or it is closed."""

    settings: Settings
    _timer: asyncio.TimerHandle | None = None
    _stage = 0  # counts the beginnings and ends of headers and bodies
    _patience: float | None = None  # seconds for what is to come next
    _header_bytes = 0
    _in_headers = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.settings.max_connections:
            self._refuse(503, "busy", "too many connections: try again shortly")
            return
        self._expect(self.settings.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES + self.settings.max_body:
                self._refuse(431, "headers", "the headers are too large")
                return
        stage = self._stage
        super().data_received(data)
        if stage != self._stage and (self._patience or self._timer):
            self._expect(self._patience)  # a request that came whole needs no timer
        if self._in_headers and self._header_bytes > _MAX_HEADER_BYTES:
            self._refuse(431, "headers", "the headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._enter(self.settings.header_timeout)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        self._enter(self.settings.body_timeout)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._enter(None)
        super().on_message_complete()

    def _enter(self, patience: float | None) -> None:
        self._stage += 1
        self._patience = patience

    def _expect(self, seconds: float | None) -> None:
        """Give the client so long to send what is missing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self.cycle is not None and (self.cycle.response_started and not self._in_headers):
            self.transport.close()  # it has its answer, and goes on sending
        else:
            self._refuse(408, "timeout", "the request did not arrive in time")

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"error": {"code": code, "message": message}}).encode()
        phrases = {408: "Request Timeout", 431: "Request Header Fields Too Large",
                   503: "Service Unavailable"}  # fmt: skip
        head = f"HTTP/1.1 {status} {phrases[status]}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
        if not self.transport.is_closing():
            self.transport.write(head.encode() + body)
            self.transport.close()


class Server(uvicorn.Server):
    """SIGTERM turns readiness off, lets `drain` seconds pass for proxies to notice, then ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._service.draining or sig == signal.SIGINT:
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        self._service.draining = True
        asyncio.get_event_loop().call_later(self._service.settings.drain, self._end)

    def _end(self) -> None:
        self.should_exit = True


def serve(service: Service, beside: Background | None = None) -> None:
    """Run until a signal ends it; `beside` runs along with it."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # what has been loaded stays: collections need not look at it
    gc.set_threshold(*_COLLECT)
    settings = service.settings
    protocol: Any = type("Protocol", (BoundedProtocol,), {"settings": settings})
    config = uvicorn.Config(
        create_app(service, beside),
        host=settings.host,
        port=settings.port,
        http=protocol,
        ws="none",
        log_level=settings.log_level,
        access_log=False,
        proxy_headers=False,  # nothing here depends on who the client is
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_GRACE_SECONDS - int(settings.drain),
        backlog=2048,
    )
    Server(config, service).run()
