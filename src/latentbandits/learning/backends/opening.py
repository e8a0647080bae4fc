"""The choice of the engine for a log, and the opening of the log on it.

An engine out of core writes to a scratch folder. It is removed when the work ends, when it fails,
and when the process is asked to stop (SIGTERM, Ctrl-C). A folder left behind by a killed process is
removed by the next process that opens a scratch folder there.
"""

from __future__ import annotations

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
from typing import Any, Literal, get_args

from latentbandits.learning.backends.backend import MemoryEngine
from latentbandits.learning.backends.out_of_core import (
    LogColumns,
    OutOfCoreEngine,
    Partitions,
    open_partitions,
    write_partitions,
)
from latentbandits.learning.logs.formats import DETECTED, LogError, TextFormat
from latentbandits.learning.logs.interactions import (
    DECISION,
    Interactions,
    OnEngine,
    find_columns,
    read_interactions,
)
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import files_of, row_count
from latentbandits.owned_tempdir import own_folder, remove_left_overs
from latentbandits.report.report import Progress

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


EngineName = Literal["memory", "out_of_core", "spark"]

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
    if requested not in ("auto", *get_args(EngineName)):
        names = ", ".join(("auto", *get_args(EngineName)))
        raise LogError(f"engine must be one of {names}; got {requested!r}")
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

        names = (opening.user, opening.action, opening.reward, opening.order)
        with on_spark(log, names, opening.more, opening.master, progress) as on_executors:
            yield OnEngine(on_executors)
        return
    with _partitioned(log, opening, progress) as partitions:
        engine = OutOfCoreEngine(partitions, progress=progress)
        yield OnEngine(engine, disk=size_of(partitions.folder))


def _in_memory(log: Any, opening: Opening) -> OnEngine:
    more = opening.more
    if isinstance(log, Log):
        if more:
            raise LogError(
                f"{', '.join(more)}: features are columns of a table; give `fit` the table itself, "
                "not a Log"
            )
        if opening.session_gap is not None and log.times is None:
            raise LogError("session_gap needs the times of the rows, and this Log has none")
        return OnEngine(MemoryEngine(log), Interactions(log))
    names = ("user", "action", "reward", "order", "text_format", "unrewarded", "more")
    timed = opening.session_gap is not None
    if timed and opening.order is None:
        raise LogError("session_gap needs the column of time: name it with --time (order=)")
    lists = None
    if opening.list is not None and opening.position is not None:
        lists = opening.list, opening.position
    options = {name: getattr(opening, name) for name in names}
    read = read_interactions(log, **options, lists=lists, timed=timed)
    held = replace(read.log, beside=read.more) if more or lists else read.log
    return OnEngine(MemoryEngine(held), read)


@contextmanager
def _partitioned(log: Any, opening: Opening, progress: Progress) -> Iterator[Partitions]:
    """Yield partitions of the log: kept ones, or new ones, which may be scratch files."""
    given = opening.user, opening.action, opening.reward
    names, has_decisions = find_columns(log, *given, opening.text_format)
    if has_decisions:
        raise LogError(
            f"the log has a column {DECISION}: exports of the service are read in memory, because "
            "a later row of a decision replaces an earlier one. Write the rows that count to "
            f"Parquet without {DECISION}, or use the engine memory"
        )
    columns = LogColumns(*names, opening.order, opening.text_format, tuple(opening.more))
    needed = columns.bytes_of_a_row * sum(row_count(path) for path in files_of(log))
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
    """Make partitions in `folder`; a folder that was made for them is removed if that fails."""
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
    return made.in_folder(folder)


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
    parts = log if isinstance(log, (list, tuple)) else [log]
    return bool(parts) and all(isinstance(part, (str, os.PathLike)) for part in parts)
