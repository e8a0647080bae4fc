"""Read tables: files of any format, a folder or a glob; or a polars, pandas or Arrow frame."""

from __future__ import annotations

import glob
import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from latentbandits.learning.logs.formats import DETECTED, SUFFIXES, LogError, TextFormat, read_file
from latentbandits.names import nearest

__all__ = ["LogError", "Table", "TableSource", "TextFormat", "read_table"]

TableSource: TypeAlias = Any
"""A path or glob, or a list of these; a polars, pandas or Arrow frame; or a mapping of column names
to columns."""


@dataclass(frozen=True, eq=False)
class Table:
    """The requested columns, and the file that each row came from."""

    frame: pl.DataFrame
    files: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()  # number of rows up to and including each file

    def where(self, row: int) -> str:
        """Name the place of a row: rows are counted from 1, a CSV's header not counted.

        >>> Table(pl.DataFrame(), ("a.csv", "b.csv"), (10, 30)).where(12)
        'row 3 of b.csv'
        """
        if not self.files:
            return f"row {row + 1}"
        file = bisect_right(self.ends, row)
        start = self.ends[file - 1] if file else 0
        return f"row {row - start + 1} of {self.files[file]}"


def read_table(
    source: TableSource,
    columns: Sequence[str],
    *,
    text: Sequence[str] = (),
    text_format: TextFormat = DETECTED,
) -> Table:
    """Read `columns` of `source`.

    Columns of delimited text are strings; those not named in `text` become numbers where all their
    values are numbers. Of several files that are named one by one, `text` columns may differ in
    type: they become strings. `text_format` says how delimited text is written.

    >>> read_table({"user": [1, 2], "reward": [0.5, 1.0]}, ["reward"]).frame.shape
    (2, 1)
    """
    if isinstance(source, (str, os.PathLike)):
        return _read_files(files_of(source), columns, text, text_format, one_kind=True)
    if isinstance(source, (list, tuple)) and source:
        one_kind = len(source) == 1
        return _read_files(files_of(source), columns, text, text_format, one_kind=one_kind)
    frame = _from_frame(source, columns)
    if frame.is_empty():
        raise LogError("the table has no rows")
    return Table(frame)


def files_of(source: TableSource) -> list[Path]:
    """Return the files of a path, folder or glob, or of a list of these."""
    parts = source if isinstance(source, (list, tuple)) else [source]
    if not all(isinstance(part, (str, os.PathLike)) for part in parts):
        raise LogError("a list of tables must hold paths; concatenate frames before")
    paths = [path for part in parts for path in files_of_path(os.fspath(part))]
    twice = [path for i, path in enumerate(paths) if path.resolve() in map(Path.resolve, paths[:i])]
    if twice:
        raise LogError(f"{twice[0]} is named twice: its rows would count twice")
    return paths


def column_names(source: TableSource) -> list[str]:
    """Return the names of the columns of `source`; of several files, those of the first.

    >>> column_names({"user": [1, 2], "reward": [0.5, 1.0]})
    ['user', 'reward']
    """
    if isinstance(source, (str, os.PathLike)):
        first = files_of_path(os.fspath(source))[0]
        if first.suffix == ".parquet":  # the names are read without the rows
            try:
                return list(pl.read_parquet_schema(first))
            except (pl.exceptions.PolarsError, OSError):
                pass  # `read_file` raises the error
        return read_file(first, ()).columns
    if isinstance(source, pl.LazyFrame):
        return source.collect_schema().names()
    if isinstance(source, Mapping):
        return [str(column) for column in source]
    if not hasattr(source, "columns") and hasattr(source, "__arrow_c_stream__"):
        return pl.DataFrame(source).columns
    columns: Any = getattr(source, "column_names", None) or getattr(source, "columns", ())
    return [str(column) for column in columns]


def files_of_path(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.name.endswith(SUFFIXES) and p.is_file())
        if not files:
            kinds = ".csv, .tsv, .jsonl, .parquet or .arrow (compressed: .gz, .zst)"
            raise LogError(f"{source} holds no file that ends in {kinds}")
        return files
    if path.is_file():
        return [path]
    matches = sorted(Path(p) for p in glob.glob(source, recursive=True) if Path(p).is_file())
    if not matches:
        raise LogError(f"{source} does not exist, and as a glob it matches no file")
    return matches


def _read_files(
    paths: list[Path],
    columns: Sequence[str],
    text: Sequence[str],
    text_format: TextFormat,
    *,
    one_kind: bool,
) -> Table:
    """Read files one after the other; those of `one_kind` must have the same columns and types."""
    frames, first = [], list[str]()
    for path in paths:
        whole = read_file(path, columns, text_format)
        check_columns(columns, whole.columns, str(path))
        first = first or whole.columns
        if one_kind and path.suffix == paths[0].suffix and set(first) != set(whole.columns):
            raise LogError(
                f"the files do not have the same columns: {paths[0]} has {', '.join(first)}; "
                f"{path} has {', '.join(whole.columns)}. Give files of one kind, or a glob that "
                "matches only those"
            )
        frames.append(typed(whole.select(columns), text))
    if not one_kind:
        frames = [frame.with_columns(as_text(frame[name]) for name in text) for frame in frames]
    for path, frame in zip(paths, frames, strict=True):
        for column in columns:
            kinds = frames[0].schema[column], frame.schema[column]
            if kinds[0] != kinds[1] and not all(kind.is_numeric() for kind in kinds):
                raise LogError(
                    f"the files' columns differ in type: {column} is {kinds[0]} in {paths[0]} and "
                    f"{kinds[1]} in {path}"
                )
    frame = pl.concat(frames, how="vertical_relaxed")
    if frame.is_empty():
        raise LogError(f"{paths[0]} has no rows" if len(paths) == 1 else "no file has any rows")
    ends = tuple(accumulate(len(part) for part in frames))
    return Table(frame, tuple(str(path) for path in paths), ends)


def typed(frame: pl.DataFrame, text: Sequence[str]) -> pl.DataFrame:
    """Convert columns of strings that are all numbers to numbers, except `text` columns."""
    for name in frame.columns:
        column = frame[name]
        if name not in text and column.dtype == pl.String:
            for kind in (pl.Int64, pl.Float64):
                numbers = column.cast(kind, strict=False)
                if numbers.null_count() == column.null_count():
                    frame = frame.with_columns(numbers)
                    break
    return frame


def as_text(column: pl.Series) -> pl.Series:
    """Return ids as text, lists as they are; whole floats become integers.

    Pandas turns a column of ids with gaps to floats.
    """
    if column.dtype.is_nested():
        return column
    if column.dtype.is_float():
        whole = column.cast(pl.Int64, strict=False)
        if (whole == column).all():
            column = whole
    return column.cast(pl.String)


def latest(frame: pl.DataFrame, decision: str, cursor: str) -> pl.DataFrame:
    """Keep one row of each decision: that of the largest cursor, else the last; others unchanged.

    An export writes a decision again when its reward comes late or is corrected. Its cursors say
    which row is newer, in whatever order the files were given.

    >>> rows = {"id": ["a", "b", "a"], "cursor": ["x-3", "x-2", "x-1"], "reward": [1.0, 0.0, None]}
    >>> latest(pl.DataFrame(rows), "id", "cursor")["reward"].to_list()
    [1.0, 0.0]
    """
    if decision not in frame.columns:
        return frame
    rows = frame.with_row_index("__row")
    by = [*([cursor] if cursor in frame.columns else []), "__row"]
    named = rows.filter(pl.col(decision).is_not_null()).sort(by).unique(decision, keep="last")
    return pl.concat([rows.filter(pl.col(decision).is_null()), named]).sort("__row").drop("__row")


def check_columns(wanted: Sequence[str], there: list[str], where: str) -> None:
    missing = [column for column in wanted if column not in there]
    if missing:
        noun = "column" if len(missing) == 1 else "columns"
        near = nearest(missing[0], there, cutoff=0.6)
        hint = "" if near is None else f" (did you mean {near}?)"
        raise LogError(
            f"{where} has no {noun} {', '.join(missing)}{hint}; the columns there are: "
            f"{', '.join(there)}"
        )


def _from_frame(source: TableSource, columns: Sequence[str]) -> pl.DataFrame:
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    if isinstance(source, pl.DataFrame):
        check_columns(columns, source.columns, "the frame")
        return source.select(columns)
    if type(source).__module__.split(".")[0] == "pandas":
        check_columns(columns, [str(column) for column in source.columns], "the frame")
        return _frame({column: source[column].to_numpy() for column in columns})
    if hasattr(source, "__arrow_c_stream__"):
        return _from_frame(pl.DataFrame(source), columns)
    if isinstance(source, Mapping):
        check_columns(columns, [str(column) for column in source], "the mapping")
        return _frame({column: source[column] for column in columns})
    raise LogError(
        "a log is a path, a polars, pandas or Arrow frame, or a mapping of columns; got a "
        f"{type(source).__name__}"
    )


def _frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    try:
        return pl.DataFrame(columns, strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise LogError(f"these columns do not make a table: {error}") from None


def row_count(path: Path) -> int:
    """Return the number of rows of a file, estimated from its size if it is not stored."""
    if path.suffix == ".parquet":
        return int(read_rows(path, pl.scan_parquet(path).select(pl.len())).item())
    packed = 4 if path.suffix in (".gz", ".zst", ".zstd") else 1
    return packed * path.stat().st_size // 16 + 1


def read_rows(path: Path, rows: pl.LazyFrame) -> pl.DataFrame:
    """Return the `rows` of a Parquet file; LogError if the file is damaged."""
    try:
        return rows.collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise LogError(f"{path} cannot be read as Parquet: {reason}") from None


def milliseconds(times: pl.Series) -> pl.Series:
    """Return times as milliseconds since 1970; text is ISO 8601, as exports write it."""
    if times.dtype == pl.String:
        zoned = "%Y-%m-%dT%H:%M:%S%.f%z"
        has_zone = times.str.contains(r"[+-]\d\d:?\d\d$").any()
        times = times.str.to_datetime(zoned if has_zone else None, time_unit="ms")
    return times.cast(pl.Datetime("ms")).to_physical()
