"""Sources of the log: a running service, or its store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from latentbandits.client import Client
from latentbandits.serving.export import export, frame
from latentbandits.serving.stores import open_log


class Logged(NamedTuple):
    """All decisions with the rewards that count, and the cursor where the log ended."""

    decisions: pl.DataFrame
    cursor: str


class Source(Protocol):
    def read(self) -> Logged:
        """Read the whole log.

        The log is read anew in every run and never kept: a session that was forgotten in the
        service is gone from the next run too.
        """


class StoreSource:
    """The store of a service, read beside it."""

    def __init__(self, store: str) -> None:
        self._store = store

    def read(self) -> Logged:
        reader = open_log(self._store)
        try:
            with tempfile.TemporaryDirectory(prefix="latentbandits-relearn-") as folder:
                path = Path(folder, "log.parquet")
                done = export(reader, str(path))
                return Logged(_latest(pl.read_parquet(path)), done.next)
        finally:
            reader.close()


class ServiceSource:
    """A running service, over HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self) -> Logged:
        frames, cursor = [], ""
        while True:
            page = self._client.log(cursor)
            if page.decisions:
                frames.append(frame(page.decisions))
            if page.next == cursor:
                break
            cursor = page.next
        decisions = pl.concat(frames) if frames else frame([])
        return Logged(_latest(decisions), cursor)


def _latest(decisions: pl.DataFrame) -> pl.DataFrame:
    return decisions.unique("decision_id", keep="last", maintain_order=True)
