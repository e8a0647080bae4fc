"""Temporary folders whose names tell which process made them.

A folder that a killed process has left behind is recognised by its name: the number and the start
time of the process follow the prefix.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path


def marked(prefix: str) -> str:
    """Return `prefix` followed by the number and the start time of this process."""
    process = os.getpid()
    return f"{prefix}{process}-{_born(process)}-"


def remove_left_overs(above: Path, prefix: str, keep: str | None = None) -> list[Path]:
    """Remove the folders of dead processes named by `marked(prefix)`, and return them.

    A folder that contains an entry named `keep` stays.
    """
    pattern = re.compile(rf"{re.escape(prefix)}(\d+)-(\d+)-\w+")
    removed = []
    for folder in above.iterdir():
        match = pattern.fullmatch(folder.name)
        if match is None or not folder.is_dir() or folder.is_symlink():
            continue
        process, born = int(match[1]), int(match[2])
        if _born(process) != born and not (keep is not None and (folder / keep).exists()):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


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
