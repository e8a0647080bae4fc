"""Read tables: files of any format, a folder or a glob; or a polars, pandas or Arrow frame.

Compression, separator and encoding of text are detected. A file that cannot be read completely
raises an error that names the line; no row is dropped or repaired silently.
"""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import io
import json
import math
import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, TypeAlias

import polars as pl

from latentbandits.names import nearest

Kind: TypeAlias = Literal["CSV", "JSON lines", "Parquet", "Arrow"]

_KINDS: dict[str, Kind] = {
    ".csv": "CSV",
    ".tsv": "CSV",
    ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
    ".parquet": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
}
_COMPRESSIONS = (".gz", ".zst", ".zstd")
SUFFIXES = tuple(suffix + end for suffix in _KINDS for end in ("", *_COMPRESSIONS))
"""Suffixes of the files that are read from a folder; a file given by name may have any suffix."""

_SEPARATORS = (",", "\t", ";", "|", "::")
_STAND_IN = "\x1f"  # replaces a separator of several characters; text that holds it is refused
_HEAD = 2**16  # first bytes, in which separator and header are detected
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class LogError(ValueError):
    """A table that cannot be learned from; the message gives the reason and a remedy."""


def check_one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise LogError if the option `name` has a value that is not allowed."""
    if value not in allowed:
        raise LogError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


@dataclass(frozen=True)
class TextFormat:
    """The separator, encoding and columns of delimited text; None: detected.

    `columns` are the names of the columns of files without a header line.
    """

    separator: str | None = None
    encoding: str | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and (not self.separator or "\n" in self.separator):
            raise LogError(f"the separator must be one or more characters; got {self.separator!r}")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise LogError(
                    f"{self.encoding!r} is not an encoding that Python knows; try utf-8, cp1252 "
                    "or utf-16"
                ) from None
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise LogError(f"the columns must have different names; got {', '.join(self.columns)}")


DETECTED = TextFormat()


def read_file(path: Path, wanted: Sequence[str], text: TextFormat = DETECTED) -> pl.DataFrame:
    """Read a file: all columns of delimited text as strings, the columns of other formats typed.

    `wanted` are the columns that are needed: a separator under which the header holds them all is
    preferred. Of Parquet and Arrow only these are read, if they are there.
    """
    kind, compression = _kind(path)
    try:
        if kind == "CSV":
            return _read_delimited(path, compression, wanted, text)
        if text.columns is not None:
            raise LogError(f"{path} is {kind}, which names its columns itself: omit the columns")
        if kind == "Parquet":
            source: Any = path if compression is None else _content(path, compression)
            there = set(pl.read_parquet_schema(source))
            chosen = list(wanted) if wanted and there >= set(wanted) else None
            return pl.read_parquet(source, columns=chosen)  # the caller reports missing columns
        data = _content(path, compression)
        if kind == "JSON lines":
            return _read_json_lines(path, data)
        read = pl.read_ipc if data[:6] == b"ARROW1" else pl.read_ipc_stream
        return read(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError) as error:
        lines = str(error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise LogError(f"{path} cannot be read as {kind}: {reason}") from None


def _kind(path: Path) -> tuple[Kind, str | None]:
    """Return the kind of table, by the file's name or its first bytes, and its compression."""
    suffixes = path.suffixes
    compression = suffixes.pop() if suffixes and suffixes[-1] in _COMPRESSIONS else None
    if suffixes and suffixes[-1] in _KINDS:
        return _KINDS[suffixes[-1]], compression
    with path.open("rb") as file:
        start = file.read(8)
    if compression is None and start[:2] == b"\x1f\x8b":
        compression = ".gz"
    elif compression is None and start[:4] == b"\x28\xb5\x2f\xfd":
        compression = ".zst"
    if compression is not None:
        start = _content(path, compression)[:8]
    if start[:4] == b"PAR1":
        return "Parquet", compression
    if start[:6] == b"ARROW1":
        return "Arrow", compression
    return ("JSON lines" if start.lstrip()[:1] == b"{" else "CSV"), compression


def _content(path: Path, compression: str | None) -> bytes:
    data = path.read_bytes()
    if compression is None:
        return data
    if compression != ".gz":
        return _unzstd(path, data)
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(f"{path} cannot be decompressed: {error}") from None


def _unzstd(path: Path, data: bytes) -> bytes:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise LogError(f"{path} is compressed by zstd: pip install zstandard to read it") from None
    parts = []
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            parts.append(frame.decompress(data))
        except zstandard.ZstdError as error:
            raise LogError(f"{path} cannot be decompressed: {error}") from None
        if not frame.eof:
            raise LogError(f"{path} cannot be decompressed: the file ends too early")
        data = frame.unused_data
    return b"".join(parts)


def _read_json_lines(path: Path, data: bytes) -> pl.DataFrame:
    _check_text(path, data)
    try:
        return pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
    except (pl.exceptions.PolarsError, TypeError, RuntimeError):
        pass  # a broken line, or values of several types: the slow reader names it
    rows = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise LogError(f"{path}, line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise LogError(f"{path}, line {number} is not a JSON object, but {line[:40]!r}")
        rows.append({name: _plain(value) for name, value in row.items()})
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def _read_delimited(
    path: Path, compression: str | None, wanted: Sequence[str], text: TextFormat
) -> pl.DataFrame:
    data = _content(path, compression)
    if not data.strip():
        raise LogError(f"{path} cannot be read as CSV: the file is empty")
    encoding = text.encoding or _check_text(path, data)
    if text.encoding is not None or codecs.lookup(encoding).name != "utf-8":
        try:
            data = data.decode(encoding).encode("utf-8")
        except UnicodeDecodeError as error:
            line = _line(data, error.start)
            raise LogError(f"{path}, line {line} is not text in {encoding}: {error}") from None
    head = data[:_HEAD].decode("utf-8", errors="ignore")
    separator = text.separator or _detect_separator(head, wanted, text.columns)
    if len(separator) > 1:
        data = data.replace(separator.encode(), _STAND_IN.encode())
        head = head.replace(separator, _STAND_IN)
        separator = _STAND_IN
    first = next(_rows(head, separator))
    names = list(text.columns or first)
    if len(first) != len(names):
        raise LogError(
            f"{path} has {len(first)} fields in its first line, but {len(names)} columns were "
            f"named: {', '.join(names)}"
        )
    repeated = [name for name in wanted if names.count(name) > 1]
    if repeated:
        raise LogError(f"{path} has two columns {repeated[0]!r}: which one is meant?")
    if text.columns is None and not set(wanted) <= set(names) and any(map(is_number, first)):
        raise LogError(
            f"{path} has no column {next(n for n in wanted if n not in names)}: its first line "
            f"holds numbers ({', '.join(first)}). If the file has no header, name its "
            "columns: --columns a,b,c"
        )
    frame = _parse(path, data, separator, names, text.columns is None)
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    return frame.filter(~blank) if blank.any() else frame


def _parse(
    path: Path, data: bytes, separator: str, names: list[str], has_header: bool
) -> pl.DataFrame:
    """Read all columns as strings: only then does polars detect rows with too many fields."""
    odd_quotes = data.count(b'"') % 2 == 1
    if not odd_quotes:
        try:
            frame = pl.read_csv(
                io.BytesIO(data),
                separator=separator,
                has_header=has_header,
                infer_schema_length=0,
            )
            if frame.width == len(names):
                frame.columns = _distinct(names)
                return frame
        except pl.exceptions.PolarsError:
            pass  # a row of too many fields, or quotes inside fields: the slow reader names it
    rows = _rows(data.decode("utf-8"), separator, strict=True)
    columns: list[list[str | None]] = [[] for _ in names]
    for number, row in _numbered(path, rows):
        if len(row) > len(names):
            shown = separator.replace(_STAND_IN, "the separator").join(row)
            raise LogError(
                f"{path}, line {number} has {len(row)} fields, but there are {len(names)} columns "
                f"({', '.join(names)}): {shown[:80]!r}. Mend that line, or quote the field that "
                "holds a separator"
            )
        for column, value in zip(columns, [*row, *[""] * (len(names) - len(row))], strict=True):
            column.append(value or None)
    if has_header:
        columns = [column[1:] for column in columns]
    series = [
        pl.Series(n, c, dtype=pl.String) for n, c in zip(_distinct(names), columns, strict=True)
    ]
    return pl.DataFrame(series)


def _rows(text: str, separator: str, strict: bool = False) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)


def _numbered(path: Path, rows: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with the number of its first line; blank lines are left out."""
    line = 1
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error)
            if reason == "unexpected end of data":
                reason = "it opens a quotation mark that is not closed"
            raise LogError(f"{path}, line {line} cannot be read as CSV: {reason}") from None
        if row:
            yield line, row
        line = rows.line_num + 1  # type: ignore[attr-defined]


def _distinct(names: Sequence[str]) -> list[str]:
    """Return distinct column names: repeats of a name get a number."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def _detect_separator(head: str, wanted: Iterable[str], columns: tuple[str, ...] | None) -> str:
    r"""Return the separator that yields the wanted names; else the one with most fields in every
    line.

    >>> _detect_separator("user;action;reward\na;1,5;0\n", ["user", "action"], None)
    ';'
    >>> _detect_separator("1::1193::5\n1::661::3\n", [], None)
    '::'
    """
    lines = [line for line in head.splitlines() if line.strip()]
    lines = lines[: max(len(lines) - 1, 1)][:20]  # the last may be cut off
    counts: list[tuple[int, str]] = []
    for separator in _SEPARATORS:
        single = _STAND_IN if len(separator) > 1 else separator
        text = "\n".join(lines).replace(separator, single)
        rows = [row for row in _rows(text, single) if row]
        if columns is None and set(wanted) <= set(rows[0]) and len(rows[0]) > 1:
            return separator
        if columns is not None and len(rows[0]) == len(columns) > 1:
            return separator
        if len({len(row) for row in rows}) == 1 and len(rows[0]) > 1:
            counts.append((len(rows[0]), separator))
    return max(counts, key=lambda pair: pair[0])[1] if counts else ","


def _check_text(path: Path, data: bytes) -> str:
    """Return the encoding of `data`; LogError names the line of bytes that are not text.

    It is UTF-8 with or without a byte order mark, UTF-16 with one, else Windows-1252. Invalid
    bytes in a file that also holds UTF-8 are an error.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return encoding
    control = _CONTROL.search(data)
    if control is not None:
        raise LogError(_binary(path, data, control.start()))
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        try:
            data.decode("cp1252")
        except UnicodeDecodeError:
            raise LogError(_binary(path, data, error.start)) from None
        if not data[: error.start].isascii():
            raise LogError(_binary(path, data, error.start)) from None
        return "cp1252"
    return "utf-8"


def _binary(path: Path, data: bytes, position: int) -> str:
    start = data.rfind(b"\n", 0, position) + 1
    end = data.find(b"\n", position)
    line = data[start : end if end >= 0 else None]
    remedy = "Mend or drop that line"
    for encoding, high in (("utf-16-le", data[1:_HEAD:2]), ("utf-16-be", data[:_HEAD:2])):
        if high.count(0) > len(high) / 2:  # the high bytes of Latin letters are zero
            remedy = f"If the file is UTF-16 without a byte order mark, try --encoding {encoding}"
    return (
        f"{path}, line {_line(data, position)} holds bytes that are no text (the first is "
        f"0x{data[position]:02x}): {line[:40]!r}. {remedy}"
    )


def _line(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def is_number(text: str) -> bool:
    """Return whether `text` is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


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
    if isinstance(source, (str, os.PathLike, list, tuple)) and parts_of(source):
        one_kind = len(parts_of(source)) == 1
        return _read_files(files_of(source), columns, text, text_format, one_kind=one_kind)
    frame = _from_frame(source, columns)
    if frame.is_empty():
        raise LogError("the table has no rows")
    return Table(frame)


def parts_of(source: TableSource) -> Sequence[Any]:
    """Return the paths or tables of a list of them; of anything else, itself."""
    return source if isinstance(source, (list, tuple)) else [source]


def files_of(source: TableSource) -> list[Path]:
    """Return the files of a path, folder or glob, or of a list of these."""
    parts = parts_of(source)
    if not all(isinstance(part, (str, os.PathLike)) for part in parts):
        raise LogError("a list of tables must hold paths; concatenate frames before")
    paths = [path for part in parts for path in files_of_path(os.fspath(part))]
    twice = [path for i, path in enumerate(paths) if path.resolve() in map(Path.resolve, paths[:i])]
    if twice:
        raise LogError(f"{twice[0]} is named twice: its rows would count twice")
    return paths


def column_names(source: TableSource) -> list[str]:
    """Return the names of the columns of `source`; of several files, the first one's.

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
    """Read files one after the other; files of `one_kind` must have the same columns and types."""
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
    types = ColumnTypes()
    for path, frame in zip(paths, frames, strict=True):
        for column in columns:
            types.check(str(path), column, frame.schema[column])
    frame = pl.concat(frames, how="vertical_relaxed")
    if frame.is_empty():
        raise LogError(f"{paths[0]} has no rows" if len(paths) == 1 else "no file has any rows")
    ends = tuple(accumulate(len(part) for part in frames))
    return Table(frame, tuple(str(path) for path in paths), ends)


class ColumnTypes:
    """The types of columns in the files that were read so far; numbers of all kinds are alike."""

    def __init__(self) -> None:
        self._known: dict[str, pl.DataType] = {}

    def check(self, file: str, column: str, dtype: pl.DataType) -> None:
        """Raise LogError if a column has another type than in earlier files."""
        known = self._known.setdefault(column, dtype)
        if known == pl.Null:  # a column without values
            self._known[column] = dtype
        kinds = known, dtype
        if known != dtype and pl.Null not in kinds and not all(one.is_numeric() for one in kinds):
            raise LogError(
                f"the files' columns differ in type: {column} is {dtype} in {file} and {known} in "
                "the files before it"
            )


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
    """Keep one row of each decision: the one of the largest cursor, else the last. Keep other rows.

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


ROW_OF_LIST = "__list"
"""The column in which `by_list` numbers lists."""


def by_list(frame: pl.DataFrame, name: str, place: pl.Expr, *within: str) -> pl.DataFrame:
    """Return the rows list by list, by their place in it; `ROW_OF_LIST` is the list's number.

    Lists with the same value of `name` (and of the columns `within`) are one; a row without a value
    is a list of one. Lists are in the order of their first rows.
    """
    row = pl.col(ROW_OF_LIST)
    alone = pl.when(pl.col(name).is_null()).then(row)
    numbered = frame.with_row_index(ROW_OF_LIST)
    numbered = numbered.with_columns(alone.otherwise(row.min().over(*within, name)))
    return numbered.sort(ROW_OF_LIST, place, maintain_order=True)


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
    is_pandas = type(source).__module__.split(".")[0] == "pandas"
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    elif not is_pandas and hasattr(source, "__arrow_c_stream__"):
        source = pl.DataFrame(source)
    if not is_pandas and not isinstance(source, (pl.DataFrame, Mapping)):
        raise LogError(
            "a log is a path, a polars, pandas or Arrow frame, or a mapping of columns; got a "
            f"{type(source).__name__}"
        )
    where = "the mapping" if isinstance(source, Mapping) else "the frame"
    check_columns(columns, column_names(source), where)
    if isinstance(source, pl.DataFrame):
        return source.select(columns)
    values = {name: source[name].to_numpy() if is_pandas else source[name] for name in columns}
    try:
        return pl.DataFrame(values, strict=False)
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
