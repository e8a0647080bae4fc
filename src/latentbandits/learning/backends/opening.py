"""Read a log, such as an export of the service, and open it on the engine that suits its size."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, get_args

import polars as pl

from latentbandits.learning.backends.backend import LogEngine, MemoryEngine
from latentbandits.learning.backends.out_of_core import (
    MORE,
    OutOfCoreEngine,
    Partitions,
    beside_of,
    bytes_of_a_row,
    further_names,
    open_partitions,
    write_partitions,
)
from latentbandits.learning.logs.rows import Log, LogColumns, conversion, read_columns, seconds_of
from latentbandits.learning.logs.tables import (
    DETECTED,
    ROW_OF_LIST,
    LogError,
    TableSource,
    TextFormat,
    as_text,
    by_list,
    check_columns,
    check_one_of,
    column_names,
    files_of,
    latest,
    parts_of,
    read_table,
    row_count,
)
from latentbandits.owned_tempdir import own_folder, remove_left_overs
from latentbandits.report.report import Progress

DECISION = "decision_id"
"""The column of decision ids, by which an export of the service is recognised."""

LIST, POSITION = "list_id", "list_position"
"""The columns of an export of lists."""

CURSOR = "cursor"
"""The column of an export that orders the rows of one decision."""

USER_FEATURES = "user_features"
"""The column of an export with the attributes of the session's user, as JSON."""

_USERS = ("user", "session")

EngineName = Literal["memory", "out_of_core", "spark"]


@dataclass(frozen=True)
class Opening:
    """The options for reading a log; `FitOptions` documents them."""

    engine: EngineName | Literal["auto"] = "auto"
    user: str | None = None
    action: str | None = None
    reward: str | None = None
    order: str | None = None
    unrewarded: float | None = None
    more: Sequence[str] = ()
    text_format: TextFormat = DETECTED
    list: str | None = None
    position: str | None = None
    session_gap: float | None = None
    scratch: str | os.PathLike[str] | None = None
    partitions: str | os.PathLike[str] | None = None
    master: str | None = None

    def columns_among(self, names: Sequence[str]) -> LogColumns:
        """Return the columns of a log with the columns `names`; those not given are found."""
        user, action, reward = name_columns(names, self.user, self.action, self.reward)
        return LogColumns(user, action, reward, self.order, self.text_format, self.further)

    @property
    def further(self) -> tuple[str, ...]:
        """The columns to read besides users, actions, rewards and their order."""
        lists = [] if self.list is None or self.position is None else [self.list, self.position]
        return tuple(dict.fromkeys([*self.more, *lists]))


class Interactions(NamedTuple):
    """A log, and the treatment of decisions that had no reward."""

    log: Log
    n_unrewarded: int = 0  # decisions without a reward
    filled_with: float | None = None  # their reward; None: they were dropped
    n_replaced: int = 0  # rows that a later row of the same decision replaced


class OnEngine(NamedTuple):
    """A log on its engine, its `Interactions` if it is in memory, and its bytes in partitions."""

    engine: LogEngine
    read: Interactions | None = None
    disk: int | None = None

    def report(self) -> dict[str, Any]:
        """Return plain data for report.json."""
        return {"name": self.engine.name, "partitions": self.engine.n_buckets, "disk": self.disk}


def name_columns(
    names: Sequence[str], user: str | None, action: str | None, reward: str | None
) -> tuple[str, str, str]:
    """Return the columns of users, actions and rewards among `names`; those not given are found."""
    return (
        user or _column(names, _USERS, "user"),
        action or _column(names, ("action",), "action"),
        reward or _column(names, ("reward",), "reward"),
    )


def read_interactions(source: TableSource, opening: Opening) -> Interactions:
    """Read one log or several, each with the columns that are named, or found.

    A table without the column `user` has its users in "user" or "session". Several rows of one
    decision (an export writes a decision again when its reward comes late) count once: the newest
    row counts. Decisions of an export without a reward are dropped, or get the reward `unrewarded`;
    in other tables a missing reward is an error unless `unrewarded` is given. The columns `more`
    are read too; an export has the users' attributes in `user_features`, and its column `features`
    is read as the features of the action that was chosen. If rows are positions of lists, a row
    without a reward was not observed, and is dropped in any table. With `session_gap` the log has
    the times of its rows.

    >>> table = {"decision_id": ["a", "b", "c"], "session": ["x", "x", "y"], "action": [0, 1, 1],
    ...          "reward": [1.0, None, 0.0]}
    >>> interactions = read_interactions(table, Opening())
    >>> interactions.log.n_events, interactions.n_unrewarded
    (2, 1)
    """
    unrewarded, timed = opening.unrewarded, opening.session_gap is not None
    if unrewarded is not None and not math.isfinite(unrewarded):
        raise LogError(f"the unrewarded value must be a finite number; got {unrewarded}")
    if timed and opening.order is None:
        raise LogError("session_gap needs the column of time: name it with --time (order=)")
    parts = parts_of(source)
    if len(parts) > 1:
        files_of(parts)  # LogError if these are no paths
    columns = [_columns(part, opening.text_format) for part in parts]
    exports = [DECISION in names for names in columns]
    if not any(exports) and unrewarded is None and opening.list is None:
        return Interactions(read_columns(source, opening.columns_among(columns[0]), timed))
    frames = [_frame(part, names, opening) for part, names in zip(parts, columns, strict=True)]
    everything = _concatenated(frames)
    total = len(everything)
    if opening.list is not None:
        everything = _in_lists(everything, f"{MORE}{opening.list}", f"{MORE}{opening.position}")
    frame = latest(everything, "id", "cursor").drop("id", "cursor")
    replaced = total - len(frame)
    missing = frame["reward"].is_null() | frame["reward"].is_nan()
    n_missing = int(missing.fill_null(True).sum())
    if unrewarded is not None:
        frame = frame.with_columns(pl.col("reward").fill_nan(None).fill_null(unrewarded))
    else:
        frame = frame.filter(~missing.fill_null(True))
    if frame.is_empty():
        raise LogError(
            f"none of the {total} decisions has a reward: report rewards to the service, or say "
            "what a missing one means (unrewarded=0 for clicks)"
        )
    has_order = opening.order is not None and frame["order"].null_count() == 0
    if timed and not has_order:
        raise LogError(
            f"session_gap needs a time in every row: the column {opening.order} lacks some"
        )
    order = "order" if has_order else None
    stored = LogColumns("user", "action", "reward", order, more=tuple(further_names(frame.columns)))
    log = read_columns(frame, stored, timed)
    if log.beside is not None:
        log = replace(log, beside=beside_of(log.beside))
    return Interactions(log, n_missing, unrewarded, replaced)


def has_lists(source: TableSource) -> bool:
    """Return whether the log is an export in which a decision was of a list."""
    for part in parts_of(source):
        if {DECISION, LIST, POSITION} <= set(column_names(part)):
            table = read_table(part, [LIST], text=[LIST]).frame
            if table[LIST].null_count() < len(table):
                return True
    return False


def _in_lists(frame: pl.DataFrame, list_column: str, position: str) -> pl.DataFrame:
    """Return the rows list by list, from the top; ids name the position of a decision."""
    place = pl.col(position).cast(pl.Float64, strict=False)
    named = frame.with_columns(pl.col("id") + "/" + place.fill_null(0).cast(pl.String))
    return by_list(named, list_column, place).drop(ROW_OF_LIST)


def _concatenated(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the tables; times that are numbers in some and text in others become text."""
    kinds = {frame["order"].dtype for frame in frames} - {pl.Null()}
    if len(kinds) > 1 and not all(kind.is_numeric() for kind in kinds):
        frames = [frame.with_columns(pl.col("order").cast(pl.String)) for frame in frames]
    return pl.concat(frames, how="vertical_relaxed")


def _columns(source: TableSource, text_format: TextFormat) -> list[str]:
    if text_format.columns is not None and isinstance(source, (str, os.PathLike)):
        return list(text_format.columns)
    return column_names(source)


def _column(names: Sequence[str], wanted: tuple[str, ...], option: str) -> str:
    for name in wanted:
        if name in names:
            return name
    raise LogError(
        f"the log has no column {' or '.join(wanted)}: name it with --{option} (or {option}=); "
        f"its columns are {', '.join(names)}"
    )


def _frame(source: TableSource, names: list[str], opening: Opening) -> pl.DataFrame:
    """Return one table's rows as columns user, action, reward, order, id and cursor, and others.

    If the table lacks a named column, the column of an export takes its place.
    """
    given = (opening.user, opening.action, opening.reward)
    there = (name if name in names else None for name in given)
    own_user, own_action, own_reward = name_columns(names, *there)
    order, more, text_format = opening.order, opening.further, opening.text_format
    wanted = [own_user, own_action, own_reward]
    wanted += [name for name in (order, DECISION, CURSOR) if name in names]
    beside = [name for name in more if name in names]
    packed = len(beside) < len(more) and USER_FEATURES in names
    beside += [USER_FEATURES] if packed else []
    beside += ["index"] if "features" in beside and "index" in names else []
    if not packed:
        check_columns(more, names, "the log")
    wanted = list(dict.fromkeys([*wanted, *beside]))
    text = [own_user, own_action] + [name for name in (DECISION, CURSOR) if name in wanted]
    table = read_table(source, wanted, text=text, text_format=text_format).frame
    stated = table[own_reward]
    rewards = stated.cast(pl.Float64, strict=False)
    unreadable = rewards.is_null() & stated.is_not_null()
    if stated.dtype == pl.String:
        unreadable &= stated.str.strip_chars() != ""
    if unreadable.any():
        row = int(unreadable.arg_max() or 0)
        advice = conversion(stated.filter(unreadable))
        raise LogError(f"{own_reward} is not a number in row {row + 1}: {stated[row]!r}. {advice}")
    nothing = pl.Series([None] * len(table), dtype=pl.String)
    times = pl.Series([None] * len(table), dtype=pl.Null)
    if order is not None and order in wanted:
        times = table[order]
        if opening.session_gap is not None:  # seconds, which are the same in all tables
            times = pl.Series(seconds_of(times, order))
    return pl.DataFrame(
        {
            "user": as_text(table[own_user]),
            "action": as_text(table[own_action]),
            "reward": rewards,
            "order": times,
            "id": as_text(table[DECISION]) if DECISION in wanted else nothing,
            "cursor": as_text(table[CURSOR]) if CURSOR in wanted else nothing,
            **{MORE + name: _beside(table, name) for name in more},
        }
    )


def _beside(table: pl.DataFrame, name: str) -> pl.Series:
    """Return a further column: from the table, or from an export's `user_features`."""
    if name not in table.columns:
        users = [None if text is None else json.loads(text) for text in table[USER_FEATURES]]
        values = [None if user is None else user.get(name) for user in users]
        return pl.Series(name, values, strict=False)
    column = table[name]
    if name != "features" or "index" not in table.columns:
        return column
    rows = [_parsed(value) for value in column]
    chosen = [
        value[index] if value and isinstance(value[0], list) else value
        for value, index in zip(rows, table["index"].cast(pl.Int64), strict=True)
    ]
    return pl.Series(name, chosen, dtype=pl.List(pl.Float64))


def _parsed(value: Any) -> Any:
    """Return the value, parsed if it is JSON text."""
    if value is None or isinstance(value, list):
        return value
    return json.loads(value) if isinstance(value, str) else value.to_list()


# The choice of the engine for a log, and the opening of the log on it.
#
# An engine out of core writes to a scratch folder. It is removed when the work ends, when it fails,
# and when the process is asked to stop (SIGTERM, Ctrl-C). A folder left behind by a killed process
# is removed by the next process that opens a scratch folder there.

_PREFIX = "latentbandits-scratch-"
_SPARE = 1.1  # factor on the expected size, when free space is checked


@contextmanager
def scratch_folder(parent: str | os.PathLike[str] | None, needed: int) -> Iterator[Path]:
    """Yield a new folder below `parent` (None: the system's) and remove it at the end.

    Raise LogError before any work if there is no space for `needed` bytes.
    """
    above = Path(tempfile.gettempdir() if parent is None else parent)
    if not above.is_dir():
        raise LogError(f"the folder for scratch files, {above}, does not exist: make it first")
    remove_left_overs(above, _PREFIX)
    check_space(above, needed)
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(own_folder(above, _PREFIX))
        except OSError as error:
            cause = error.strerror
            raise LogError(f"no scratch files can be written to {above}: {cause}") from None
        stack.enter_context(stopped_by_exception())
        yield folder


def check_space(folder: Path, needed: int) -> None:
    """Raise LogError if `folder` has no space for `needed` bytes."""
    free = shutil.disk_usage(folder).free
    if free < _SPARE * needed:
        raise LogError(
            f"partitions of the log need about {in_units(needed)}, and {folder} has "
            f"{in_units(free)} free: name a folder with more space (--scratch, or scratch=)"
        )


def in_units(n_bytes: int) -> str:
    """Return a number of bytes in readable units.

    >>> in_units(1_500_000_000), in_units(20_000)
    ('1.5 GB', '0.0 MB')
    """
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB"


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def stopped_by_exception() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that temporary files are removed."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> Any:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


BYTES_IN_MEMORY = 250
"""Bytes of memory per row of a log while it is read and learned from."""

_SHARE = 0.5  # fraction of the available memory that a log in memory may use


def is_spark(log: Any) -> bool:
    """Return whether a log is a DataFrame of Spark, without importing Spark."""
    kind = type(log)
    return kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame"


def choose_engine(log: Any, requested: EngineName | Literal["auto"], partitions: Any) -> EngineName:
    """Return the `requested` engine; "auto" chooses by the size of the log's files.

    Files that would take more than half of the available memory are learned out of core.
    """
    check_one_of("engine", requested, ("auto", *get_args(EngineName)))
    if is_spark(log):
        if requested not in ("auto", "spark"):
            raise LogError(
                f"a DataFrame of Spark is learned on Spark; engine {requested} reads files"
            )
        return "spark"
    if requested != "auto":
        if requested != "memory" and not _are_paths(log):
            raise LogError(
                f"the engine {requested} reads files: give their paths, a folder or a glob; got a "
                f"{type(log).__name__}"
            )
        return requested
    if partitions is not None:
        return "out_of_core"
    if not _are_paths(log):
        return "memory"
    expected = BYTES_IN_MEMORY * sum(row_count(path) for path in files_of(log))
    return "out_of_core" if expected > _SHARE * available_memory() else "memory"


@contextmanager
def opened(log: Any, opening: Opening, progress: Progress) -> Iterator[OnEngine]:
    """Yield the log on its engine; scratch files are removed afterwards."""
    chosen = choose_engine(log, opening.engine, opening.partitions)
    if chosen != "out_of_core" and opening.partitions is not None:
        raise LogError(f"partitions are for the engine out_of_core, not for {chosen}")
    if chosen != "spark" and opening.master is not None:
        raise LogError(f"master is for the engine spark, not for {chosen}: add --engine spark")
    if chosen == "memory":
        progress.start("reading the log", 1)
        yield _in_memory(log, opening)
        return
    if opening.list is not None:
        raise LogError(f"a log of lists is read with the engine memory, not with {chosen}")
    if opening.unrewarded is not None:
        raise LogError(
            f"unrewarded needs the engine memory, not {chosen}: fill in missing rewards before"
        )
    if opening.session_gap is not None:
        raise LogError(f"session_gap needs the engine memory, not {chosen}")
    if chosen == "spark":
        from latentbandits.learning.backends.spark import on_spark

        with on_spark(log, opening, progress) as on_executors:
            yield OnEngine(on_executors)
        return
    with _partitioned(log, opening, progress) as partitions:
        engine = OutOfCoreEngine(partitions, progress=progress)
        yield OnEngine(engine, disk=size_of(partitions.folder))


def _in_memory(log: Any, opening: Opening) -> OnEngine:
    if not isinstance(log, Log):
        read = read_interactions(log, opening)
        return OnEngine(MemoryEngine(read.log), read)
    if opening.more:
        raise LogError(
            f"{', '.join(opening.more)}: features are columns of a table; give `fit` the table "
            "itself, not a Log"
        )
    if opening.session_gap is not None and log.times is None:
        raise LogError("session_gap needs the times of the rows, and this Log has none")
    return OnEngine(MemoryEngine(log), Interactions(log))


@contextmanager
def _partitioned(log: Any, opening: Opening, progress: Progress) -> Iterator[Partitions]:
    """Yield partitions of the log: kept ones, or new ones, which may be scratch files."""
    names = _columns(parts_of(log)[0], opening.text_format)
    columns = opening.columns_among(names)
    if DECISION in names:
        raise LogError(
            f"the log has a column {DECISION}: exports of the service are read in memory, because "
            "a later row of a decision replaces an earlier one. Write the rows that count to "
            f"Parquet without {DECISION}, or use the engine memory"
        )
    needed = bytes_of_a_row(columns) * sum(row_count(path) for path in files_of(log))
    if opening.partitions is None:
        with scratch_folder(opening.scratch, needed) as folder:
            yield write_partitions(log, columns, folder, progress)
        return
    folder = Path(opening.partitions)
    if folder.exists() and not folder.is_dir():
        raise LogError(f"--partitions must be a folder, to keep partitions in; {folder} is a file")
    kept = open_partitions(folder, log, columns) if folder.exists() else None
    yield _made_partitions(folder, needed, log, columns, progress) if kept is None else kept


def _made_partitions(
    folder: Path, needed: int, log: Any, columns: LogColumns, progress: Progress
) -> Partitions:
    """Make partitions in `folder`; on failure remove the folder if it was made for them."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with scratch_folder(folder, needed) as making:
            made = write_partitions(log, columns, making, progress)
            for path in sorted(making.iterdir(), key=lambda path: path.suffix == ".json"):
                path.replace(folder / path.name)  # the manifest comes last
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
    return replace(made, folder=folder)


def available_memory() -> int:
    """Return the bytes of memory that the machine and its container leave to this process."""
    try:
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        match = None
    free = 1024 * int(match[1]) if match else 2**32
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return min(free, max(limit - used, 0))


def _are_paths(log: Any) -> bool:
    parts = parts_of(log)
    return bool(parts) and all(isinstance(part, (str, os.PathLike)) for part in parts)
