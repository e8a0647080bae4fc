"""The service's log: read from a cursor on, over HTTP or from the store, and kept by relearning.

The kept log is one Parquet file, whose name holds the cursor up to which the log was read:
`log-<cursor>.parquet`. A run reads the log after that cursor, writes a new file and removes the old
one. A crash leaves the old file or both; of two files the one with the later cursor counts.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from latentbandits.client import Client
from latentbandits.loop.data import generation
from latentbandits.replacing import replace_file
from latentbandits.serving.errors import Refused, UnknownCursor
from latentbandits.serving.export import SCHEMA, export, frame
from latentbandits.serving.log import forgotten
from latentbandits.serving.records import RewardEntry
from latentbandits.serving.stores import open_log

_PREFIX, _SUFFIX = "log-", ".parquet"
REWARD_COLUMNS = ("reward", "reward_status", "reward_kind", "reward_time")


class Changes(NamedTuple):
    """The log after a cursor.

    Attributes:
        decisions: new and changed decisions with the rewards in force.
        rewards: `decision_id` and `REWARD_COLUMNS` of the last reward events, of any decisions.
        cursor: where the log ended.
    """

    decisions: pl.DataFrame
    rewards: pl.DataFrame
    cursor: str


class Source(Protocol):
    """A log that can be read from a cursor on."""

    def read(self, since: str) -> Changes:
        """Read the log after the cursor `since`; ValueError if the cursor is another store's."""

    def forgotten(self, decisions: Sequence[str]) -> set[str]:
        """Return the ids of forgotten decisions; ValueError if the log cannot be read."""


class StoreSource:
    """The store of a service, read while the service runs."""

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
    rows = [
        (one.decision_id, one.value, one.status, one.kind, round(one.time * 1000))
        for one in last.values()
    ]
    kinds = {name: SCHEMA[name] for name in ("decision_id", *REWARD_COLUMNS)}
    table = pl.DataFrame(rows, kinds | {"reward_time": pl.Int64()}, orient="row")
    return table.cast({"reward_time": SCHEMA["reward_time"]})


# The copy in the work folder.


class Logged(NamedTuple):
    """All decisions with the rewards in force, and the cursor where the log ended."""

    decisions: pl.DataFrame
    cursor: str
    read: int  # decisions and rewards that were new in this run
    forgotten: int  # decisions that were dropped, because their sessions were forgotten


class KeptLog:
    """The kept log of a work folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "log"
        self._folder.mkdir(parents=True, exist_ok=True)

    def update(self, source: Source) -> Logged:
        """Read new rows, drop forgotten sessions, and keep the result.

        Raises:
            ValueError: the kept log is of another store, or its file cannot be read.
        """
        path = self._current()
        cursor = "" if path is None else path.name[len(_PREFIX) : -len(_SUFFIX)]
        kept = frame([]) if path is None else _read(path)
        try:
            changes = source.read(cursor)
        except Exception as error:
            if getattr(error, "code", "") == UnknownCursor.code:
                raise ValueError(
                    f"{self._folder} holds the log of another store, or of this one before it was "
                    f"restored from a backup (cursor {cursor}): remove that folder to read the "
                    "log anew, or give another --work folder"
                ) from None
            raise
        decisions = merged(kept, changes.decisions, changes.rewards)
        gone = source.forgotten(_one_of_each_session(decisions)) if len(decisions) else set()
        remaining = without(decisions, gone)
        read = len(changes.decisions) + len(changes.rewards)
        dropped = len(decisions) - len(remaining)
        if read or dropped or changes.cursor != cursor:
            self._write(remaining, changes.cursor, path)
        return Logged(remaining, changes.cursor, read, dropped)

    def _current(self) -> Path | None:
        """Return the file that was read furthest; remove the others and unfinished ones."""
        files = sorted(self._folder.glob(f"{_PREFIX}*{_SUFFIX}"), key=_position)
        for path in (*files[:-1], *self._folder.glob(f".{_PREFIX}*")):
            path.unlink(missing_ok=True)
        return files[-1] if files else None

    def _write(self, decisions: pl.DataFrame, cursor: str, old: Path | None) -> None:
        path = self._folder / f"{_PREFIX}{cursor}{_SUFFIX}"
        data = io.BytesIO()
        decisions.write_parquet(data)
        replace_file(path, data.getvalue())
        if old is not None and old != path:
            old.unlink(missing_ok=True)


def merged(kept: pl.DataFrame, new: pl.DataFrame, rewards: pl.DataFrame) -> pl.DataFrame:
    """Return the kept and the new decisions, each once, with the rewards in force.

    A new row of a decision replaces its kept row. `rewards` belong to kept or new decisions: a row
    may have been read before its reward came.
    """
    both = pl.concat([kept, new], how="diagonal").unique("decision_id", keep="last")
    # earlier versions kept no users
    both = both.with_columns(pl.col("user").fill_null(pl.col("session")))
    names = both.columns
    changed = rewards.rename({name: f"{name} now" for name in REWARD_COLUMNS})
    is_changed = pl.col("reward_status now").is_not_null()  # to no reward, in parts of a list
    both = both.join(changed, on="decision_id", how="left").with_columns(
        pl.when(is_changed).then(f"{name} now").otherwise(name).alias(name)
        for name in REWARD_COLUMNS
    )
    # ids begin with the order, which increases within a session
    return both.select(names).sort("decision_id")


def without(decisions: pl.DataFrame, forgotten: set[str]) -> pl.DataFrame:
    """Return the decisions of sessions without any forgotten decision."""
    if not forgotten:
        return decisions
    gone = pl.col("decision_id").is_in(list(forgotten))
    return decisions.filter(~gone.any().over("session", generation(decisions)))


def _one_of_each_session(decisions: pl.DataFrame) -> list[str]:
    """Return one decision id of every session; a session is forgotten as a whole."""
    sessions = decisions.group_by("session", generation(decisions).alias("generation")).agg(
        pl.col("decision_id").last()
    )
    ids: list[str] = sessions["decision_id"].to_list()
    return ids


def _position(path: Path) -> int:
    digits = path.name[len(_PREFIX) : -len(_SUFFIX)].rpartition("-")[2]
    return int(digits, 16) if digits else 0


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ValueError(
            f"cannot read {path} ({error}): remove it, and the log is read anew"
        ) from None
