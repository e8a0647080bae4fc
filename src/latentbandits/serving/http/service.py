"""The parts of a running service, put together; no HTTP yet."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.library import ActionNames
from latentbandits.serving.engine.writer import Writer
from latentbandits.serving.errors import Refused
from latentbandits.serving.http.keys import Keys
from latentbandits.serving.http.messages import LogEntry
from latentbandits.serving.http.metrics import Metrics
from latentbandits.serving.http.views import log_entry
from latentbandits.serving.settings import Settings
from latentbandits.serving.stores import LogReader

Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)
_SWEEP_SECONDS = 30.0
_SWEEP_ROWS = 500


class Service:
    """An engine with its writer, keys and metrics. `start` and `stop` run inside an event loop."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.keys = None if settings.keys is None else Keys.read(settings.keys)
        self.metrics = Metrics()
        self.writer = Writer(engine, settings.max_waiting)
        self.models_folder = None if settings.models is None else Path(settings.models)
        self.draining = False
        self._started = False
        self._reader: LogReader | None = None
        self._reading = threading.Lock()
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.writer.start()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        self._started = True

    async def stop(self) -> None:
        """Commit what waits and close the store."""
        self.draining = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._reader is not None and self.engine.store.durable:
            await self.in_thread(self._reader.close)
        await self.writer.close()

    async def ready(self) -> bool:
        """Whether requests will be answered; a store that failed is tried again here."""
        if self.draining or not self._started:
            return False
        if self.writer.store_works:
            return True
        try:
            await self.writer.run(lambda e: e.store.put_note("probe", b"ready"), urgent=True)
        except Refused:
            return False
        return self.writer.store_works

    async def read_log(self, since: int, limit: int) -> list[LogEntry]:
        if not self.engine.store.durable:
            return self._read(since, limit)
        return await self.in_thread(self._read, since, limit)

    def _read(self, since: int, limit: int) -> list[LogEntry]:
        """Beside the writer, on a connection of its own."""
        with self._reading:
            if self._reader is None:
                self._reader = self.engine.store.log_reader()
                self._names = ActionNames(self._reader.model)
            try:
                return [log_entry(row, self._names) for row in self._reader.read(since, limit)]
            except Refused:
                self._reader.close()
                self._reader = None
                raise

    async def in_thread(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)

    async def _sweep(self) -> None:
        """End and forget sessions whose time has come, a few hundred at a time."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                while await self.writer.run(lambda e: e.sweep(_SWEEP_ROWS)) >= _SWEEP_ROWS:
                    await asyncio.sleep(0.1)
            except Refused as refusal:
                _log.warning("expired sessions were left for later: %s", refusal)
