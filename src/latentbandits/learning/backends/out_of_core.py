"""The engine of logs larger than memory: Parquet partitions of whole users, and passes over them.

The partitions are written in one stream over the log's files.
Each chunk of rows is sorted by the hash of its users and written once. Then the rows of each bucket
of users are collected, sorted by user, and stored as `rows-NNN.parquet` and `users-NNN.parquet`.
Memory holds one chunk, and later one partition. `manifest.json` identifies the log.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from latentbandits.learning import user_hash
from latentbandits.learning.backends.backend import Change, LogEngine, summed
from latentbandits.learning.logs.rows import (
    Log,
    LogColumns,
    check_several,
    checked_rewards,
    refuse,
    sort_ids,
)
from latentbandits.learning.logs.tables import (
    ColumnTypes,
    LogError,
    Table,
    as_text,
    check_columns,
    files_of,
    parts_of,
    read_file,
    read_rows,
    row_count,
    typed,
)
from latentbandits.learning.user_hash import MOST_BUCKETS
from latentbandits.models.checks import IntArray
from latentbandits.report.report import Progress, Silent

# Further columns of a log, stored by engines next to user, action and reward.

MORE = "more:"
"""Prefix of the stored names of further columns, so they cannot clash with other names."""


def further_names(columns: Sequence[str]) -> list[str]:
    """Return the names of stored columns that are further columns."""
    return [name for name in columns if name.startswith(MORE)]


def beside_of(rows: pl.DataFrame) -> pl.DataFrame | None:
    """Return the further columns of stored rows under their original names; None without any.

    >>> beside_of(pl.DataFrame({"user": [0], "more:price": [2.5]})).columns
    ['price']
    """
    names = further_names(rows.columns)
    return rows.select(names).rename(lambda name: name.removeprefix(MORE)) if names else None


def stored_rows(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of whole users, in their order, and the users, as an engine stores them.

    `frame` has rows in the order of the log: the columns user, key, action (a number), reward,
    perhaps order, and further ones.
    """
    order = ["order"] if "order" in frame.columns else []
    stated = pl.struct("user", "action", "reward", *order)
    frame = frame.with_columns((~stated.is_first_distinct()).alias("repeat"))
    frame = frame.sort("key", "user", *order, maintain_order=True)
    new = (frame["user"] != frame["user"].shift(1)).fill_null(True)
    rows = frame.select(
        (new.cast(pl.Int32).cum_sum() - 1).cast(pl.Int32).alias("user"),
        pl.col("action").cast(pl.Int32),
        "reward",
        "repeat",
        *further_names(frame.columns),
    )
    return rows, frame.filter(new).select(pl.col("user").alias("id"), "key")


def stored_log(rows: pl.DataFrame, users: pl.DataFrame, action_ids: tuple[str, ...]) -> Log:
    """Return the log of rows and users as `stored_rows` made them, sorted by user key."""
    repeats = rows["repeat"].to_numpy().astype(np.bool_) if "repeat" in rows.columns else None
    return Log(
        rows["user"].to_numpy().astype(np.int64),
        rows["action"].to_numpy().astype(np.int64),
        rows["reward"].to_numpy().astype(np.float64),
        tuple(users["id"]),
        action_ids,
        repeats if repeats is not None and repeats.any() else None,
        users["key"].to_numpy().astype(np.uint64),
        beside=beside_of(rows),
    )


CHUNK = 2_000_000
"""The number of rows that are read at once."""

BYTES_OF_A_ROW = 64
BYTES_OF_A_COLUMN = 24
"""Scratch space per row, and per further column of a row, while partitions are made."""

_MANIFEST = "manifest.json"
_ROWS_OF_A_GROUP = 8_192  # row group size of a chunk's file; the rows of one hash are read alone
_FORMAT = 1


def bytes_of_a_row(columns: LogColumns) -> int:
    """Return the scratch space that a row takes while partitions are made."""
    return BYTES_OF_A_ROW + BYTES_OF_A_COLUMN * len(columns.more)


@dataclass(frozen=True)
class Partitions:
    """A folder of complete partitions."""

    folder: Path
    n_users: int
    n_rows: int
    action_ids: tuple[str, ...]

    @cached_property
    def n_buckets(self) -> int:
        return user_hash.bucket_count(self.n_users)

    def load(self, number: int) -> Log | None:
        """Return the log of a bucket, sorted by user key; None if the bucket is empty."""
        files = [self.folder / f"{name}-{number:03}.parquet" for name in ("rows", "users")]
        if not files[0].exists():
            return None
        rows, users = (read_rows(path, pl.scan_parquet(path)) for path in files)
        return stored_log(rows, users, self.action_ids)


@dataclass(eq=False)
class OutOfCoreEngine(LogEngine):
    """A log on disk, whose partitions are read one by one in every pass."""

    name: ClassVar[str] = "out_of_core"
    partitions: Partitions
    changes: tuple[Change, ...] = ()
    progress: Progress = field(default_factory=Silent)
    passes: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # their numbers

    def __post_init__(self) -> None:
        self.action_ids, self.n_buckets = self.partitions.action_ids, self.partitions.n_buckets

    def mapped(self, change: Change) -> OutOfCoreEngine:
        return replace(self, changes=(*self.changes, change))

    def _summed(self, summariser: Any, parameters: Any) -> Iterator[tuple[int, Any]]:
        self.progress.start(f"pass {next(self.passes)} over the partitions", self.n_buckets)
        yield from summed(self._nonempty(), self.changes, summariser, parameters)

    def _nonempty(self) -> Iterator[tuple[int, Log]]:
        for number in range(self.n_buckets):
            log = self.partitions.load(number)
            if log is not None:
                yield number, log
            self.progress.advance(1)


def write_partitions(
    source: Any, columns: LogColumns, folder: Path, progress: Progress
) -> Partitions:
    """Stream the rows of `source` (files, folders, globs) into partitions below `folder`."""
    paths = files_of(source)
    total = sum(row_count(path) for path in paths)
    n_chunks = -(-total // CHUNK)
    progress.start("partitioning the log", n_chunks + MOST_BUCKETS)
    one_kind = len(parts_of(source)) == 1  # as `read_table` has it
    writer = _Writer(folder, columns, one_kind)
    for path in paths:
        for table in _tables(path, columns):
            writer.add(table)
            progress.advance(1)
    partitions = writer.finish(progress)
    manifest = {
        "format": _FORMAT,
        "log": _fingerprint(paths, columns),
        "n_users": partitions.n_users,
        "n_rows": partitions.n_rows,
        "action_ids": list(partitions.action_ids),
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest) + "\n")  # last: marks the folder complete
    return partitions


def open_partitions(folder: Path, source: Any, columns: LogColumns) -> Partitions | None:
    """Return the partitions in `folder`; None if it is empty.

    Raise LogError if they are of another log. A folder that was left half written has no manifest
    and is rejected too.
    """
    path = folder / _MANIFEST
    if not path.exists():
        if any(folder.iterdir()):
            raise LogError(
                f"{folder} is not empty and holds no partitions of a log: name another folder, or "
                "empty it"
            )
        return None
    try:
        manifest = json.loads(path.read_text())
        if manifest["format"] != _FORMAT:
            raise LogError(f"{folder} holds partitions of format {manifest['format']}: remove it")
        partitions = Partitions(
            folder, manifest["n_users"], manifest["n_rows"], tuple(manifest["action_ids"])
        )
        theirs = manifest["log"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise LogError(f"{path} cannot be read: remove the folder, it will be made again") from None
    ours = _fingerprint(files_of(source), columns)
    for what, value in ours.items():
        if theirs.get(what) != value:
            raise LogError(
                f"{folder} holds partitions of another log: its {what} are "
                f"{_shown(theirs.get(what))}, this log's are {_shown(value)}. Name another folder, "
                "or remove it"
            )
    files = folder.glob("rows-*.parquet")
    n_rows = sum(row_count(path) for path in files)
    if n_rows != partitions.n_rows:
        raise LogError(
            f"{folder} holds {n_rows:,} of the {partitions.n_rows:,} rows of this log: remove the "
            "folder, it will be made again"
        )
    return partitions


class _Writer:
    """A collector of chunks, sorted by hash, that turns them into partitions."""

    def __init__(self, folder: Path, columns: LogColumns, one_kind: bool) -> None:
        self._folder, self._columns = folder, columns
        self._one_kind = one_kind  # whether ids must have the same type in all files
        self._codes: dict[str, int] = {}  # codes of actions, in order of first appearance
        self._ends: list[IntArray] = []  # for each chunk, number of rows up to each hash, inclusive
        self._whole: dict[str, bool] = {}  # whether float ids have been whole numbers so far
        self._types = ColumnTypes()

    def add(self, table: Table) -> None:
        columns, frame = self._columns, table.frame
        self._types.check(table.files[0], columns.reward, frame[columns.reward].dtype)
        rewards = checked_rewards(table, columns.reward)
        users, actions = (self._text(table, name) for name in (columns.user, columns.action))
        ids = users.unique()
        keys = user_hash.user_keys(ids.to_list())[_codes(users, ids)]
        met = actions.unique()
        for action in met:
            self._codes.setdefault(action, len(self._codes))
        codes = np.array([self._codes[action] for action in met], np.int32)[_codes(actions, met)]
        bucket = user_hash.buckets(keys, MOST_BUCKETS)
        rows = {"user": users, "key": keys, "action": codes, "reward": rewards}
        if columns.order is not None:
            refuse(table, columns.order, frame[columns.order].is_null(), "has no value")
            rows["order"] = frame[columns.order]
        rows |= {MORE + name: self._further(table, name) for name in columns.more}
        order = np.argsort(bucket, kind="stable")
        chunk = pl.DataFrame(rows)[order]
        path = self._chunk(len(self._ends))
        _write(chunk, path, _ROWS_OF_A_GROUP)
        self._ends.append(np.searchsorted(bucket[order], np.arange(MOST_BUCKETS), side="right"))

    def finish(self, progress: Progress) -> Partitions:
        if not self._ends:
            raise LogError("the log has no rows")
        ids = pl.Series(list(self._codes), dtype=pl.String)
        sorted_ids = tuple(sort_ids(ids))
        place = {action: code for code, action in enumerate(sorted_ids)}
        codes = np.array([place[action] for action in self._codes], np.int64)
        check_several("action", sorted_ids, self._columns.action)
        chunks = [pl.scan_parquet(self._chunk(i)) for i in range(len(self._ends))]
        keys = pl.concat([chunk.select("key") for chunk in chunks])
        found = keys.select(pl.col("key").n_unique()).collect(engine="streaming").item()
        n_buckets = user_hash.bucket_count(found)
        n_users = n_rows = 0
        some: str = ""
        for bucket in range(n_buckets):
            slices = [
                self._slice(chunk, i, number)
                for number in range(bucket, MOST_BUCKETS, n_buckets)
                for i, chunk in enumerate(chunks)
            ]
            frame = pl.concat(slices, how="vertical_relaxed")
            if len(frame):
                action = pl.Series("action", codes[frame["action"].to_numpy()])
                rows, users = stored_rows(frame.with_columns(action))
                _write(rows, self._folder / f"rows-{bucket:03}.parquet")
                _write(users, self._folder / f"users-{bucket:03}.parquet")
                n_users, n_rows = n_users + len(users), n_rows + len(rows)
                some = users["id"][0]
            progress.advance(MOST_BUCKETS // n_buckets)
        check_several("user", (some,) if n_users == 1 else ("", ""), self._columns.user)
        for i in range(len(self._ends)):
            self._chunk(i).unlink()
        return Partitions(self._folder, n_users, n_rows, sorted_ids)

    def _slice(self, chunk: pl.LazyFrame, i: int, number: int) -> pl.DataFrame:
        ends = self._ends[i]
        start = int(ends[number - 1]) if number else 0
        return chunk.slice(start, int(ends[number]) - start).collect()

    def _chunk(self, i: int) -> Path:
        return self._folder / f"chunk-{i:05}.parquet"

    def _further(self, table: Table, name: str) -> pl.Series:
        """Return a further column; raise LogError if its type differs from earlier files."""
        column = table.frame[name]
        if isinstance(column.dtype, (pl.Categorical, pl.Enum)):
            column = column.cast(pl.String)
        self._types.check(table.files[0], name, column.dtype)
        return column

    def _text(self, table: Table, name: str) -> pl.Series:
        column = table.frame[name]
        if self._one_kind:
            self._types.check(table.files[0], name, column.dtype)
        refuse(table, name, column.is_null(), "has no value")
        text = as_text(column)
        if column.dtype.is_float():
            whole = "." not in (text[0] or "")
            if self._whole.setdefault(name, whole) != whole:
                raise LogError(
                    f"{name} holds whole numbers in some rows and fractions in others, as in "
                    f"{table.where(0)}: write ids as text or as integers"
                )
        return text


def _write(frame: pl.DataFrame, path: Path, rows_of_a_group: int | None = None) -> None:
    try:
        frame.write_parquet(path, compression="lz4", row_group_size=rows_of_a_group)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise LogError(
            f"partitions of the log cannot be written to {path.parent}: {reason}"
        ) from None


def _codes(values: pl.Series, ids: pl.Series) -> IntArray:
    return values.cast(pl.Enum(ids)).to_physical().to_numpy().astype(np.int64)


def _tables(path: Path, columns: LogColumns) -> Iterator[Table]:
    """Yield the rows of a file in chunks; text and JSON files are read as one chunk."""
    names = columns.names
    if path.suffix == ".parquet":
        scan = pl.scan_parquet(path)
        check_columns(names, scan.collect_schema().names(), str(path))
        scan, total = scan.select(names), row_count(path)
    else:
        frame = read_file(path, names, columns.text_format)
        check_columns(names, frame.columns, str(path))
        text = (columns.user, columns.action, columns.reward)
        scan, total = typed(frame.select(names), text).lazy(), len(frame)
    for start in range(0, total, CHUNK):
        rows = read_rows(path, scan.slice(start, CHUNK))
        # The second entry is this chunk, because `where` counts rows from the start of the file.
        yield Table(rows, (str(path), str(path)), (-start, len(rows)))


def _fingerprint(paths: Sequence[Path], columns: LogColumns) -> Mapping[str, Any]:
    """Return the files with their sizes and times, and the columns that were read."""
    files = []
    for path in paths:
        status = path.stat()
        files.append([os.fspath(path.resolve()), status.st_size, status.st_mtime_ns])
    written = columns.text_format
    text = [written.separator, written.encoding, list(written.columns or ())]
    names = [columns.user, columns.action, columns.reward, columns.order, *columns.more]
    return {"files": files, "columns": names, "text formats": text}


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 200 else f"{text[:200]}..."
