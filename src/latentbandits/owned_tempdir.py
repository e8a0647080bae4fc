"""Temporary folders that tell whether the process that made them still runs.

The name of a folder holds the number and the start time of its process, and the process locks the
folder as long as it runs. Across containers process numbers mean nothing; the lock decides.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_folder(above: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder below `above` that belongs to this process, and remove it at the end."""
    process = os.getpid()
    name = f"{prefix}{process}-{_born(process)}-"
    folder = Path(tempfile.mkdtemp(prefix=name, dir=above))
    try:
        with _holding(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_overs(above: Path, prefix: str, keep: str | None = None) -> list[Path]:
    """Remove the folders of dead processes made by `own_folder(above, prefix)`, and return them.

    A folder that contains an entry named `keep` stays.
    """
    pattern = re.compile(rf"{re.escape(prefix)}(\d+)-(\d+)-\w+")
    removed = []
    for folder in above.iterdir():
        match = pattern.fullmatch(folder.name)
        if match is None or not folder.is_dir() or folder.is_symlink():
            continue
        if _born(int(match[1])) == int(match[2]) or (keep and (folder / keep).exists()):
            continue
        with _holding(folder) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


@contextmanager
def _holding(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder; yield False if another process holds it.

    Where folders cannot be locked (Windows, some network disks), yield True: the process number in
    the folder's name must do.
    """
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield True
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except OSError as error:
        free = not isinstance(error, BlockingIOError)
    try:
        yield free
    finally:
        os.close(descriptor)


def _born(process: int) -> int:
    """Return the start time of a process in ticks since boot; 0 if it is unknown or not running.

    Process ids are reused; the start time distinguishes an old process from a new one.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return _alive(process)
    return int(text.rpartition(")")[2].split()[19])


def _alive(process: int) -> int:
    """Return 1 if a process runs, else 0; used without /proc, where start times are unknown."""
    if Path("/proc/self/stat").exists():
        return 0
    try:
        os.kill(process, 0)
    except OSError:
        return 0
    return 1
