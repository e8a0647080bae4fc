"""Sources of the log: a running service, or its store. Both are read from a cursor on."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from latentbandits.client import Client
from latentbandits.serving.errors import Refused
from latentbandits.serving.export import export, frame
from latentbandits.serving.log import forgotten
from latentbandits.serving.records import RewardEntry
from latentbandits.serving.stores import open_log

REWARD_COLUMNS = ("reward", "reward_status", "reward_kind", "reward_time")


class Changes(NamedTuple):
    """The log after a cursor.

    Attributes:
        decisions: new decisions with the rewards that count, and older ones that changed.
        rewards: `decision_id` and `REWARD_COLUMNS` of the last reward events, of any decisions.
        cursor: where the log ended.
    """

    decisions: pl.DataFrame
    rewards: pl.DataFrame
    cursor: str


class Source(Protocol):
    """A log that can be read from a cursor on."""

    def read(self, since: str) -> Changes:
        """Read the log after the cursor `since`; ValueError where it is one of another store."""

    def forgotten(self, decisions: Sequence[str]) -> set[str]:
        """Return the ids of those decisions whose sessions were forgotten; ValueError where the
        log cannot be read.
        """


class StoreSource:
    """The store of a service, read beside it."""

    def __init__(self, store: str) -> None:
        self._store = store

    def read(self, since: str) -> Changes:
        with (
            closing(open_log(self._store)) as reader,
            tempfile.TemporaryDirectory(prefix="latentbandits-relearn-") as folder,
        ):
            path = Path(folder, "log.parquet")
            done = export(reader, str(path), since)
            # Decisions of earlier pages whose reward changed are exported again.
            return Changes(pl.read_parquet(path), reward_table([]), done.next)

    def forgotten(self, decisions: Sequence[str]) -> set[str]:
        with closing(open_log(self._store)) as reader:
            try:
                return set(forgotten(reader, decisions))
            except Refused as refusal:
                raise ValueError(refusal.message) from None


class ServiceSource:
    """A running service, over HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self, since: str) -> Changes:
        decisions, rewards, cursor, until = [], [], since, ""
        while True:
            page = self._client.log(cursor, until=until)
            if page.decisions:
                decisions.append(frame(page.decisions))
            rewards += page.rewards
            if page.next == cursor:
                break
            cursor, until = page.next, page.end
        rows = pl.concat(decisions) if decisions else frame([])
        return Changes(rows, reward_table(rewards), cursor)

    def forgotten(self, decisions: Sequence[str]) -> set[str]:
        return set(self._client.forgotten(decisions))


def reward_table(entries: Sequence[RewardEntry]) -> pl.DataFrame:
    """Return the last reward event of each decision, in the columns of an export."""
    last = {entry.decision_id: entry for entry in entries}
    kinds = frame([]).schema
    columns = {
        "decision_id": list(last),
        "reward": [entry.value for entry in last.values()],
        "reward_status": [entry.status for entry in last.values()],
        "reward_kind": [entry.kind for entry in last.values()],
        "reward_time": [round(entry.time * 1000) for entry in last.values()],
    }
    numbered = {name: kinds[name] for name in columns} | {"reward_time": pl.Int64()}
    return pl.DataFrame(columns, numbered).cast({"reward_time": kinds["reward_time"]})
