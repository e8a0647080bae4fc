"""The parts of a running service, put together; no HTTP yet."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from latentbandits.models.artefacts import ArtefactError, read_files
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.model_rows import ActionNames, content_id
from latentbandits.serving.engine.writer import Writer
from latentbandits.serving.errors import Busy, Refused, StoreUnavailable
from latentbandits.serving.http.keys import Audit, Keys
from latentbandits.serving.http.messages import Log
from latentbandits.serving.http.metrics import Metrics
from latentbandits.serving.http.tokens import RewardTokens
from latentbandits.serving.log import Cursors, log_entries, reward_entries
from latentbandits.serving.settings import Settings
from latentbandits.serving.stores import LogReader

Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)
_SWEEP_SECONDS = 30.0
_SWEEP_ROWS = 500
_MOST_LOG_BYTES = 8 * 2**20  # approximate largest size of a page of the log
_WATCH_SECONDS = 0.25
_PROBE_SECONDS = 1.0
_MOST_READERS = 4
REPORT_FILE = "report.html"


class Service:
    """An engine with its writer, keys and metrics. `start` and `stop` run inside an event loop."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings
        self.keys = None if settings.keys is None else Keys(settings.keys)
        self.audit = Audit(settings.audit)
        self.metrics = Metrics()
        self.tokens = RewardTokens(engine.token_secret, settings.reward_token_seconds, engine.clock)
        self.writer = Writer(engine, settings.max_waiting, settings.request_timeout)
        self.models_folder = None if settings.models is None else Path(settings.models)
        self.draining = self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: LogReader | None = None
        self._reading = threading.Lock()
        self._readers = 0  # requests that wait for the log
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to work for the running event loop; a second call changes nothing."""
        loop = asyncio.get_running_loop()
        if self._loop is loop or self.draining:
            return
        self._loop = loop
        self.writer.start()
        self._tasks = [loop.create_task(self._sweep()), loop.create_task(self._watch())]

    async def stop(self) -> None:
        """Commit what waits and close the store; a second call changes nothing."""
        if self._stopped:
            return
        self.draining = self._stopped = True
        for task in self._tasks:
            task.cancel()
        if self._reader is not None and self.engine.store.durable:
            await self.in_thread(self._reader.close)
        await self.writer.close()
        self.audit.close()

    async def ready(self) -> bool:
        """Return whether requests will be answered: an empty transaction, or a small write if the
        last one failed, must succeed within a second.
        """
        if self.draining or self._loop is None or self.writer.oldest() > _PROBE_SECONDS:
            return False
        probe = _nothing if self.writer.store_works else _note
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self.writer.run(probe, urgent=True)
        except (Refused, TimeoutError):
            return False
        return self.writer.store_works

    async def read_log(self, since: str, limit: int, until: str) -> Log:
        """Read a page of the log."""
        return await self.beside(lambda reader: self._page(reader, since, limit, until))

    async def beside(self, read: Callable[[LogReader], Answer]) -> Answer:
        """Read beside the writer; StoreUnavailable if the store does not answer in time."""
        if not self.engine.store.durable:  # the thread that writes is the only one that can read
            return await self.writer.run(lambda engine: self._read(read))
        if self._readers >= _MOST_READERS:
            raise Busy(f"{self._readers} requests read the log already: try again shortly")
        self._readers += 1
        try:
            async with asyncio.timeout(self.settings.request_timeout):
                return await self.in_thread(self._read, read)
        except TimeoutError:
            raise StoreUnavailable("the log was not read in time: try again") from None
        finally:
            self._readers -= 1

    def _read(self, read: Callable[[LogReader], Answer]) -> Answer:
        """Read on a separate connection."""
        with self._reading:
            if self._reader is None:
                self._reader = self.engine.store.log_reader()
                self._names = ActionNames(self._reader.model)
                self._cursors = Cursors.of(self._reader)
            try:
                return read(self._reader)
            except StoreUnavailable:
                self._reader.close()
                self._reader = None
                raise

    def _page(self, reader: LogReader, since: str, limit: int, until: str) -> Log:
        cursors = self._cursors
        begin, end = cursors.span(reader, since, until)
        events = reader.read(begin, limit, _MOST_LOG_BYTES, end)
        decisions = [e for e in events if e.reward is None]
        rewards = [e for e in events if e.reward is not None]
        return Log(
            [entry for one in decisions for entry in log_entries(one, self._names, cursors)],
            [entry for one in rewards for entry in reward_entries(one, cursors)],
            cursors.at(events[-1].position) if events else since,
            cursors.at(end),
        )

    def report_file(self, name: str) -> Path | None:
        """Return the report page in the folder of the model of this name; None if there is none."""
        if self.models_folder is None:
            return None
        file = (self.models_folder / name / REPORT_FILE).resolve()
        inside = file.is_relative_to(self.models_folder.resolve())
        return file if inside and file.is_file() else None

    async def active_report(self) -> Path | None:
        """Return the active model's page; None if its folder has another model, or no page."""

        def find(engine: Engine) -> tuple[str, str]:
            active = engine.library.active.model
            return active, engine.library.summaries()[active][0]

        model, name = await self.writer.run(find)
        file = self.report_file(name)
        if file is None:
            return None
        try:
            files = await self.in_thread(read_files, file.parent)
        except ArtefactError:
            return None
        return file if content_id(files) == model else None

    async def in_thread(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        """Call a function in another thread, and wait for it."""
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)

    async def _watch(self) -> None:
        """Give up overdue requests and reload changed keys, several times a second."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            self.writer.give_up()
            if self.keys is not None:
                self.keys.reload()

    async def _sweep(self) -> None:
        """End and forget sessions whose time has come, a few hundred at a time."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                while await self.writer.run(lambda e: e.sweep(_SWEEP_ROWS)) >= _SWEEP_ROWS:
                    await asyncio.sleep(0.1)
            except Refused as refusal:
                _log.warning("expired sessions were left for later: %s", refusal)


def _nothing(engine: Engine) -> None:
    pass


def _note(engine: Engine) -> None:
    engine.store.put_note("probe", b"ready")
