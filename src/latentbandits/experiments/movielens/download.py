"""Resumable download of the official archive into a cache folder, checked by published digests."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TypeAlias

_CHUNK = 2**16
_TIMEOUT = 30  # seconds without data

Advance: TypeAlias = Callable[[str, int], Callable[[int], None]]
"""A function of a description and a total number of bytes; it returns a function of each step."""


@dataclass(frozen=True)
class Archive:
    """A zip file on the web, whose members are in one folder."""

    url: str
    folder: str  # inside the archive
    md5: str  # published next to the file
    sha256: str
    terms: str

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[1]


MOVIELENS_1M = Archive(
    url="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
    folder="ml-1m",
    md5="c4d9eecfca2ab87c1945afe126590906",
    sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    terms="""\
MovieLens 1M, by GroupLens Research at the University of Minnesota. Its terms, in short:
  - it may be used for research; not commercially without permission of GroupLens;
  - it may not be redistributed without separate permission;
  - no endorsement by the University of Minnesota or GroupLens may be stated or implied;
  - publications must acknowledge it: F. M. Harper and J. A. Konstan. 2015. The MovieLens
    Datasets: History and Context. ACM TiiS 5, 4, Article 19. doi.org/10.1145/2827872
The full terms are in the README of the archive. By downloading it you accept them.
""",
)


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/latentbandits, or ~/.cache/latentbandits."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "latentbandits"


def fetch(
    archive: Archive, cache: Path, files: Sequence[str], start: Advance | None = None
) -> Path:
    """Return the folder with the archive's `files`: from the cache, or downloaded into it."""
    folder = cache / archive.folder
    if all((folder / name).is_file() for name in files):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    zipped = cache / archive.name
    if not zipped.is_file():
        _download(archive, zipped, files, start)
    _check_digests(archive, zipped)
    _extract(archive, zipped, folder, files)
    zipped.unlink()
    return folder


def _download(archive: Archive, target: Path, files: Sequence[str], start: Advance | None) -> None:
    """Download to `target`.partial, resuming an earlier attempt; rename it when complete."""
    sys.stderr.write(archive.terms)
    partial = target.with_name(target.name + ".partial")
    done = partial.stat().st_size if partial.is_file() else 0
    request = urllib.request.Request(archive.url)
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            if response.status != 206:  # the server does not resume, and sends the whole file
                done = 0
            total = done + int(response.headers.get("Content-Length") or 0)
            advance = start(f"downloading {archive.name}", total) if start else _ignore
            advance(done)
            got = _append(response, partial, done, advance)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: the partial file is complete; its digests are checked
            raise ConnectionError(_no_way(archive, target, files, f"{error}")) from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise ConnectionError(_no_way(archive, target, files, str(reason))) from None
    else:
        if got < total:
            raise ConnectionError(
                f"the download of {archive.url} broke off after {got:,} of {total:,} bytes; the "
                "partial file is kept: run the command again to resume"
            )
    partial.rename(target)


def _append(
    response: HTTPResponse, partial: Path, done: int, advance: Callable[[int], None]
) -> int:
    with partial.open("r+b" if done else "wb") as file:
        file.seek(done)
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            advance(len(chunk))
        return file.tell()


def _no_way(archive: Archive, target: Path, files: Sequence[str], reason: str) -> str:
    return (
        f"cannot download {archive.url} ({reason}). Two ways out:\n"
        f"  1. where you have the data: pass --data DIR, or set LATENTBANDITS_DATA=DIR, with the "
        f"folder that holds {' and '.join(files)};\n"
        f"  2. on a machine with network: download {archive.url}, copy it to {target}, and run "
        "this again."
    )


def _check_digests(archive: Archive, zipped: Path) -> None:
    """Check the published digests; delete a file that fails, since resuming cannot repair it."""
    data = zipped.read_bytes()
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if (md5, hashlib.sha256(data).hexdigest()) != (archive.md5, archive.sha256):
        zipped.unlink()
        raise ValueError(
            f"{zipped} ({len(data):,} bytes) is not the published {archive.name}: its MD5 is "
            f"{md5}, the published one {archive.md5}. It was truncated or altered, and has been "
            "deleted: run the command again to download it anew"
        )


def _extract(archive: Archive, zipped: Path, folder: Path, files: Sequence[str]) -> None:
    """Extract all files in one rename, so that an existing folder is complete."""
    wanted = [f"{archive.folder}/{name}" for name in (*files, "README")]
    with tempfile.TemporaryDirectory(prefix=".extract-", dir=folder.parent) as scratch:
        with zipfile.ZipFile(zipped) as content:
            there = set(content.namelist())
            for member in wanted:
                if member in there:
                    content.extract(member, scratch)
        if folder.exists():
            shutil.rmtree(folder)  # `fetch` found it incomplete
        (Path(scratch) / archive.folder).rename(folder)


def _ignore(steps: int) -> None:
    """Show no progress."""
