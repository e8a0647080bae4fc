"""Run the app under uvicorn, with our own connections and a shutdown of bounded length."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from threadpoolctl import threadpool_limits

from latentbandits.serving.http.answering import direct_handlers
from latentbandits.serving.http.app import Background, create_app
from latentbandits.serving.http.connection import Connection, Held
from latentbandits.serving.http.service import Service

_SWITCH_SECONDS = 0.001  # switch interval between the two threads
_GRACE_SECONDS = 5  # for unfinished answers after the drain
_UNBEGUN_SECONDS = 4  # after the drain, what was not begun is refused
_LATEST_SECONDS = 9
_COLLECT = (20_000, 50, 100)  # thresholds of the garbage collector; cycles are rare
_log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """A server that on SIGTERM reports not ready, waits `drain` seconds for proxies, then ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        keys = self._service.keys
        if threading.current_thread() is threading.main_thread():  # SIGHUP never ends the process
            reload = _nothing if keys is None else partial(keys.reload, force=True)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Close the connections whose client is too slow; called ten times a second."""
        now = time.monotonic()
        for connection in list(self.server_state.connections):
            connection.overdue(now)  # type: ignore[union-attr]
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for unfinished answers; then refuse what was not begun, before the rest is told
        that its outcome is unknown.
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


def _nothing() -> None:
    """Do nothing: there are no keys to read again."""


def _leave() -> None:
    """End the process although something hangs; no answer was given before its commit."""
    _log.error("something hangs: the process ends without waiting for it")
    logging.shutdown()
    os._exit(1)


def serve(service: Service, beside: Background | None = None) -> None:
    """Run until a signal ends it; `beside` runs along with it."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # loaded modules stay: exclude them from garbage collection
    gc.set_threshold(*_COLLECT)
    settings = service.settings
    members = {"settings": settings, "held": Held(), "direct": direct_handlers(service)}
    protocol: Any = type("Protocol", (Connection,), members)
    config = uvicorn.Config(
        create_app(service, beside),
        host=settings.host,
        port=settings.port,
        http=protocol,
        ws="none",
        log_level=settings.log_level,
        access_log=False,
        proxy_headers=False,  # nothing depends on the client's address
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        backlog=2048,
    )
    # The arrays of a decision are small: BLAS threads would slow it down.
    with threadpool_limits(1, user_api="blas"):
        Server(config, service).run()
