"""A folder for scratch files that is removed when the work ends, fails, or is interrupted.

The folder is removed when the work ends, when it fails, and when the process is asked to stop
(SIGTERM, Ctrl-C). A folder left behind by a killed process (`left_overs`) is removed by the next
process that opens a scratch folder there.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from latentbandits.learning.logs.formats import LogError
from latentbandits.owned_tempdir import own_folder, remove_left_overs

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
