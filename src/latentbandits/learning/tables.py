"""Tables in: CSV or Parquet, one file, a folder or a glob; or a polars, pandas or Arrow frame."""

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

TableSource: TypeAlias = Any
"""A path or glob, a polars, pandas or Arrow frame, or a mapping of column names to columns."""

SUFFIXES = (".csv", ".csv.gz", ".parquet")


class LogError(ValueError):
    """A table that cannot be learned from; the message says why and what would help."""


@dataclass(frozen=True, eq=False)
class Table:
    """The columns asked for, and which file each row came from."""

    frame: pl.DataFrame
    files: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()  # rows up to and including each file

    def where(self, row: int) -> str:
        """Where a row is to be found: rows are counted from 1, a CSV's header not counted.

        >>> Table(pl.DataFrame(), ("a.csv", "b.csv"), (10, 30)).where(12)
        'row 3 of b.csv'
        """
        if not self.files:
            return f"row {row + 1}"
        file = bisect_right(self.ends, row)
        start = self.ends[file - 1] if file else 0
        return f"row {row - start + 1} of {self.files[file]}"


def read_table(source: TableSource, columns: Sequence[str], *, text: Sequence[str] = ()) -> Table:
    """`columns` of `source`. In CSV, `text` columns are not guessed at: they stay as written.

    >>> read_table({"user": [1, 2], "reward": [0.5, 1.0]}, ["reward"]).frame.shape
    (2, 1)
    """
    if isinstance(source, (str, os.PathLike)):
        return _read_files(_files(os.fspath(source)), columns, text)
    frame = _from_frame(source, columns)
    if frame.is_empty():
        raise LogError("the table has no rows")
    return Table(frame)


def column_names(source: TableSource) -> list[str]:
    """Return the names of the columns of `source`; of several files, those of the first.

    >>> column_names({"user": [1, 2], "reward": [0.5, 1.0]})
    ['user', 'reward']
    """
    if isinstance(source, (str, os.PathLike)):
        return list(_schema(_files(os.fspath(source))[0]))
    if isinstance(source, pl.LazyFrame):
        return source.collect_schema().names()
    if isinstance(source, Mapping):
        return [str(column) for column in source]
    if not hasattr(source, "columns") and hasattr(source, "__arrow_c_stream__"):
        return pl.DataFrame(source).columns
    columns: Any = getattr(source, "column_names", None) or getattr(source, "columns", ())
    return [str(column) for column in columns]


def _files(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.name.endswith(SUFFIXES) and p.is_file())
        if not found:
            raise LogError(f"{source} holds no file that ends in {', '.join(SUFFIXES)}")
        return found
    if path.is_file():
        return [path]
    matches = sorted(Path(p) for p in glob.glob(source, recursive=True) if Path(p).is_file())
    if not matches:
        raise LogError(f"{source} does not exist, and as a glob it matches no file")
    return matches


def _read_files(paths: list[Path], columns: Sequence[str], text: Sequence[str]) -> Table:
    schemas = [_schema(path) for path in paths]
    _check_columns(columns, list(schemas[0]), str(paths[0]))
    for path, schema in zip(paths[1:], schemas[1:], strict=True):
        _check_same_schema(columns, (paths[0], schemas[0]), (path, schema))
    frames = [_read(path, columns, text) for path in paths]
    try:
        frame = pl.concat(frames)
    except pl.exceptions.PolarsError:
        types = {
            f"{column} is {frame.schema[column]} in {path}"
            for path, frame in zip(paths, frames, strict=True)
            for column in columns
            if frame.schema[column] != frames[0].schema[column]
        }
        raise LogError(f"the files' columns differ in type: {sorted(types)[0]}") from None
    if frame.is_empty():
        raise LogError(f"{paths[0]} has no rows" if len(paths) == 1 else "no file has any rows")
    ends = tuple(accumulate(len(part) for part in frames))
    return Table(frame, tuple(str(path) for path in paths), ends)


def _schema(path: Path) -> Mapping[str, pl.DataType]:
    try:
        if _is_parquet(path):
            return pl.read_parquet_schema(path)
        return pl.read_csv(path, n_rows=0, infer_schema=False).schema
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None


def _read(path: Path, columns: Sequence[str], text: Sequence[str]) -> pl.DataFrame:
    try:
        if _is_parquet(path):
            return pl.read_parquet(path, columns=list(columns))
        overrides = dict.fromkeys(text, pl.String)
        frame = pl.read_csv(path, columns=list(columns), schema_overrides=overrides)
        return frame.select(columns)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _unreadable(path, error) from None


def _is_parquet(path: Path) -> bool:
    return path.suffix == ".parquet"


def _unreadable(path: Path, error: Exception) -> LogError:
    kind = "Parquet" if _is_parquet(path) else "CSV"
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    return LogError(f"{path} cannot be read as {kind}: {reason}")


def _check_columns(wanted: Sequence[str], there: list[str], where: str) -> None:
    missing = [column for column in wanted if column not in there]
    if missing:
        noun = "column" if len(missing) == 1 else "columns"
        raise LogError(
            f"{where} has no {noun} {', '.join(missing)}; the columns there are: {', '.join(there)}"
        )


def _check_same_schema(
    columns: Sequence[str],
    first: tuple[Path, Mapping[str, pl.DataType]],
    other: tuple[Path, Mapping[str, pl.DataType]],
) -> None:
    if set(first[1]) != set(other[1]):
        raise LogError(
            f"the files do not have the same columns: {first[0]} has {', '.join(first[1])}; "
            f"{other[0]} has {', '.join(other[1])}. Give files of one kind, or a glob that "
            "matches only those"
        )
    if _is_parquet(first[0]) and _is_parquet(other[0]):
        for column in columns:
            if first[1][column] != other[1][column]:
                raise LogError(
                    f"the files' columns differ in type: {column} is {first[1][column]} in "
                    f"{first[0]} and {other[1][column]} in {other[0]}"
                )


def _from_frame(source: TableSource, columns: Sequence[str]) -> pl.DataFrame:
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    if isinstance(source, pl.DataFrame):
        _check_columns(columns, source.columns, "the frame")
        return source.select(columns)
    if type(source).__module__.split(".")[0] == "pandas":
        _check_columns(columns, [str(column) for column in source.columns], "the frame")
        return _frame({column: source[column].to_numpy() for column in columns})
    if hasattr(source, "__arrow_c_stream__"):
        return _from_frame(pl.DataFrame(source), columns)
    if isinstance(source, Mapping):
        _check_columns(columns, [str(column) for column in source], "the mapping")
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
