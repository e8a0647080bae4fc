"""The decision log as a table: the input of evaluation and of the next `fit`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import polars

from latentbandits.serving.engine.model_rows import ActionNames
from latentbandits.serving.errors import Refused, UnknownCursor
from latentbandits.serving.log import Cursors, log_entries
from latentbandits.serving.records import LogEntry
from latentbandits.serving.stores.protocol import LogReader

_PAGE = 5_000
_PAGE_BYTES = 32 * 2**20
FORMATS = (".parquet", ".csv", ".jsonl")
SCHEMA = polars.Schema(
    {
        "decision_id": polars.String(),
        "session": polars.String(),
        "round": polars.Int64(),
        "time": polars.Datetime("ms", "UTC"),
        "model": polars.String(),
        "group": polars.String(),
        "policy": polars.String(),
        "action": polars.String(),
        "index": polars.Int64(),
        "eligible": polars.List(polars.String()),
        "features": polars.List(polars.List(polars.Float64())),
        "propensity": polars.Float64(),
        "propensity_kind": polars.String(),
        "state_probabilities": polars.List(polars.Float64()),
        "reward": polars.Float64(),
        "reward_status": polars.String(),
        "reward_kind": polars.String(),
        "reward_time": polars.Datetime("ms", "UTC"),
        "fallback": polars.Boolean(),
        "cursor": polars.String(),
        "user_features": polars.String(),
        "user": polars.String(),  # the session, or whom the request named within a population
        "list_id": polars.String(),  # the decision_id of the list's first position
        "list_position": polars.Int64(),  # from 1
    }
)
_NESTED = ("eligible", "features", "state_probabilities")
_TIMES = ("time", "reward_time")
_NUMBERED = polars.Schema({**SCHEMA, **dict.fromkeys(_TIMES, polars.Int64())})


class Exported(NamedTuple):
    """The numbers of rows and of decisions exported before, and the next export's cursor."""

    rows: int
    again: int
    next: str


def export(
    reader: LogReader,
    out: str,
    since: str = "",
    progress: Callable[[int], None] = lambda rows: None,
) -> Exported:
    """Write the decisions after the cursor `since` to a Parquet, CSV or JSONL file.

    If a decision's reward came, or was corrected, after an earlier export, the decision is written
    again: rows of one `decision_id` in a later file replace its rows in earlier files. The file
    holds the log at the moment the export began; later commits are in the next export. Pages are
    read and written one at a time. The file appears when it is complete.
    """
    target = Path(out)
    if target.suffix not in FORMATS:
        raise ValueError(f"--out must end in {', '.join(FORMATS)}; got {out!r}")
    try:
        cursors = Cursors.of(reader)
        pages = _Pages(reader, cursors)
        begin, until = cursors.span(reader, since, "")
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            whole = Path(scratch, "whole")
            _write(pages.frames(begin, until, progress), whole, Path(scratch), target.suffix)
            whole.replace(target)
    except UnknownCursor:
        raise
    except Refused as refusal:
        raise ValueError(refusal.message) from None
    except OSError as error:
        raise ValueError(f"cannot write {target}: {error.strerror or error}") from None
    return Exported(pages.rows, pages.again, cursors.at(pages.position))


class _Pages:
    """The rows of an export, page by page."""

    def __init__(self, reader: LogReader, cursors: Cursors) -> None:
        self._reader = reader
        self._names = ActionNames(reader.model)
        self._cursors = cursors
        self.position = 0
        self.rows = 0
        self.again = 0

    def frames(
        self, begin: int, until: int, progress: Callable[[int], None]
    ) -> Iterator[polars.DataFrame]:
        """Yield the rows of the export, a page of the log at a time.

        They are of new decisions, and of older ones whose reward has changed.
        """
        self.position = begin
        while events := self._reader.read(self.position, _PAGE, _PAGE_BYTES, until):
            self.position = events[-1].position
            entries = [
                (event, entry)
                for event in events
                if event.reward is None or (event.counts and event.decided_at <= begin)
                for entry in log_entries(event, self._names, self._cursors)
            ]
            self.rows += len(entries)
            self.again += sum(event.reward is not None for event, _ in entries)
            progress(self.rows)
            if entries:
                yield frame([entry for _, entry in entries])


def _write(frames: Iterator[polars.DataFrame], whole: Path, scratch: Path, kind: str) -> None:
    """Write tables to one file of this kind; in `scratch` they are kept page by page before."""
    pages = []
    for number, table in enumerate(frames):
        pages.append(scratch / f"{number:09d}.parquet")
        _shaped(table, kind).write_parquet(pages[-1])
    empty = _shaped(polars.DataFrame(schema=SCHEMA), kind).lazy()
    rows = polars.scan_parquet(pages) if pages else empty
    if kind == ".parquet":
        rows.sink_parquet(whole)
    elif kind == ".csv":
        rows.sink_csv(whole)
    else:
        rows.sink_ndjson(whole)


def _shaped(table: polars.DataFrame, kind: str) -> polars.DataFrame:
    """Return a table without what files of this kind cannot hold."""
    if kind == ".csv":
        return _flat(table)
    if kind == ".jsonl":
        return table.with_columns(polars.col(*_TIMES).dt.to_string("iso:strict"))
    return table


def _flat(table: polars.DataFrame) -> polars.DataFrame:
    """Return a table whose lists are JSON text, for a format that has none."""
    encode = msgspec.json.encode
    return table.with_columns(
        polars.Series(
            name,
            [None if value is None else encode(value).decode() for value in table[name].to_list()],
            polars.String(),
        )
        for name in _NESTED
    )


def frame(entries: list[LogEntry]) -> polars.DataFrame:
    """Return log entries as a table, one row for each."""
    rows = [msgspec.structs.asdict(entry) for entry in entries]
    for row in rows:
        for name in _TIMES:
            row[name] = None if row[name] is None else round(row[name] * 1000)
        features = row["user_features"]
        row["user_features"] = None if features is None else msgspec.json.encode(features).decode()
        row["user"] = row["session"] if row["user"] is None else row["user"]
        for name in ("list_id", "list_position"):
            row[name] = None if row[name] is msgspec.UNSET else row[name]
    table = polars.DataFrame({name: [row[name] for row in rows] for name in SCHEMA}, _NUMBERED)
    return table.cast(SCHEMA)
