"""Replace a file or a folder at once: readers see the old or the new one, even after a crash."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from latentbandits.owned_tempdir import own_folder, remove_left_overs

_HERE = -100  # AT_FDCWD: paths are relative to the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_LEAST_SPACE = 2_000_000  # bytes; a model with its report takes about one or two megabytes


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path` by way of a new file beside it.

    A file that exists keeps its group and permissions; only the owner may read a new one.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace_file(folder + "/file", b"new")
    ...     Path(folder, "file").read_bytes()
    b'new'
    """
    target = Path(path)
    descriptor, scratch = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if target.exists():
            _copy_access(target, scratch)
        os.replace(scratch, target)
    except BaseException:
        os.unlink(scratch)
        raise
    _sync(target.parent)


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `path` if the block ends without an error.

    Where the system can exchange two folders in one step (Linux), `path` exists at every moment.
    Elsewhere a crash between the two renames leaves the old folder as `.NAME-*/old` beside it.
    Other folders that killed processes have left there are removed. OSError before the block if the
    disk has hardly any space.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}-"
    remove_left_overs(target.parent, prefix, keep="old")
    with own_folder(target.parent, prefix) as scratch:
        fresh = scratch / "fresh"
        fresh.mkdir()
        _check_space(scratch, target)
        try:
            yield fresh
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                _check_space(scratch, target)
            raise
        for file in (*fresh.iterdir(), fresh):
            _sync(file)
        if not target.exists():
            fresh.rename(target)
        elif not _exchange(fresh, target):
            _rename_twice(fresh, target, scratch / "old")
        _sync(target.parent)


@contextmanager
def adding_files(folder: Path) -> Iterator[Path]:
    """Yield an empty folder whose files move to `folder` if the block ends without an error."""
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as scratch:
        yield Path(scratch)
        for file in sorted(Path(scratch).iterdir()):
            file.replace(folder / file.name)


def interrupted(path: Path) -> Path | None:
    """Return the folder that an interrupted `replacing_folder(path)` has set aside, if any."""
    return next(path.parent.glob(f".{path.name}-*/old"), None)


def _check_space(scratch: Path, target: Path) -> None:
    """Raise OSError if the disk that `target` is to be written to is full."""
    free = shutil.disk_usage(scratch).free
    if free < _LEAST_SPACE:
        raise OSError(
            f"{target} cannot be written: its disk has {free / 1e6:.1f} MB free, and at least "
            f"{_LEAST_SPACE / 1e6:.0f} MB are needed; make space there or name another folder"
        )


def _copy_access(existing: Path, scratch: str) -> None:
    """Give a new file the group and the permissions of the one that it replaces."""
    status = existing.stat()
    with suppress(OSError):  # the group is one that this user is not in
        os.chown(scratch, -1, status.st_gid)
    os.chmod(scratch, stat.S_IMODE(status.st_mode))


def _rename_twice(fresh: Path, target: Path, old: Path) -> None:
    """Set `target` aside as `old` and put `fresh` in its place; undo the first if that fails."""
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False if the system or the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux
        return False
    status: int = renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    return status == 0


def _sync(path: Path) -> None:
    """Ask the system to write a file or a folder to the disk; some file systems cannot."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
