"""MovieLens 1M in its official layout: `ratings.dat` and `movies.dat`, latin-1, split by `::`."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.report.report import Progress, Silent

# Download of the official archive into a cache folder, checked by published digests.

_CHUNK = 2**16
_TIMEOUT = 30  # seconds without data


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
    archive: Archive, cache: Path, files: Sequence[str], progress: Progress | None = None
) -> Path:
    """Return the folder with the archive's `files`: from the cache, or downloaded into it."""
    folder = cache / archive.folder
    if all((folder / name).is_file() for name in files):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    zipped = cache / archive.name
    if not zipped.is_file():
        _download(archive, zipped, files, progress or Silent())
    _check_digests(archive, zipped)
    _extract(archive, zipped, folder, files)
    zipped.unlink()
    return folder


def _download(archive: Archive, target: Path, files: Sequence[str], bar: Progress) -> None:
    """Download to `target`.partial, and rename it when complete."""
    sys.stderr.write(archive.terms)
    partial = target.with_name(target.name + ".partial")
    try:
        with urllib.request.urlopen(archive.url, timeout=_TIMEOUT) as response:
            total = int(response.headers.get("Content-Length") or 0)
            bar.start(f"downloading {archive.name}", total)
            with partial.open("wb") as file:
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    bar.advance(len(chunk))
    except (OSError, HTTPException) as error:
        reason = str(error.reason if type(error) is urllib.error.URLError else error)
        raise ConnectionError(_no_way(archive, target, files, reason)) from None
    got = partial.stat().st_size
    if got < total:
        raise ConnectionError(
            f"the download of {archive.url} broke off after {got:,} of {total:,} bytes: run the "
            "command again"
        )
    partial.rename(target)


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


FILES = ("ratings.dat", "movies.dat")
ENVIRONMENT_VARIABLE = "LATENTBANDITS_DATA"


@dataclass(frozen=True, eq=False)
class Ratings:
    """A table of ratings; users and movies are numbered from 0 in the order of their ids."""

    users: IntArray  # (n_ratings,)
    movies: IntArray  # (n_ratings,)
    ratings: FloatArray  # (n_ratings,)
    user_ids: IntArray  # (n_users,)
    movie_ids: IntArray  # (n_movies,)
    titles: tuple[str, ...]  # (n_movies,)
    genres: BoolArray  # (n_movies, n_genres)
    genre_names: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.ratings):,} ratings of {len(self.movie_ids):,} movies by "
            f"{len(self.user_ids):,} users"
        )


def given_folder(data: str | None) -> Path | None:
    """Return the MovieLens folder named by --data or the environment; None if neither is set."""
    named = data or os.environ.get(ENVIRONMENT_VARIABLE)
    if not named:
        return None
    folder = Path(named)
    _check_folder(folder, "--data" if data else ENVIRONMENT_VARIABLE)
    return folder


def find_folder(data: str | None, progress: Progress | None = None) -> Path:
    """Return the folder of the data: the given one, else the cache, downloaded if necessary."""
    return given_folder(data) or fetch(MOVIELENS_1M, cache_folder(), FILES, progress)


def load(folder: Path) -> Ratings:
    """Read a MovieLens 1M folder; raise ValueError that names the file, the line and the fault."""
    _check_folder(folder, "the MovieLens folder")
    ids, titles, genres = _read_movies(folder / "movies.dat")
    user, movie, rating = _read_ratings(folder / "ratings.dat")
    user_ids, users = np.unique(user, return_inverse=True)
    movie_ids, movies = np.unique(movie, return_inverse=True)
    row = {movie_id: i for i, movie_id in enumerate(ids)}
    missing = [int(m) for m in movie_ids if int(m) not in row]
    if missing:
        raise ValueError(
            f"{folder}: movie {missing[0]} is rated in ratings.dat but is not in movies.dat "
            f"({len(missing)} such movies): the two files are not from the same archive"
        )
    rated = [row[int(m)] for m in movie_ids]
    names = sorted({name for i in rated for name in genres[i]})
    return Ratings(
        users,
        movies,
        rating.astype(np.float64),
        user_ids,
        movie_ids,
        tuple(titles[i] for i in rated),
        np.array([[name in genres[i] for name in names] for i in rated]),
        tuple(names),
    )


def _check_folder(folder: Path, origin: str) -> None:
    if not folder.is_dir():
        raise ValueError(f"{origin} {folder}: there is no such folder")
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        inside = [
            str(child.parent)
            for child in sorted(folder.glob(f"*/{FILES[0]}"))
            if (child.parent / FILES[1]).is_file()
        ]
        hint = f"; did you mean {inside[0]}?" if inside else ""
        contents = ", ".join(sorted(child.name for child in folder.iterdir())[:8]) or "nothing"
        raise ValueError(
            f"{origin} {folder} is not a MovieLens 1M folder: it lacks {' and '.join(missing)} "
            f"(it holds {contents}){hint}"
        )


def _read_ratings(path: Path) -> tuple[IntArray, IntArray, IntArray]:
    """Read lines of the form UserID::MovieID::Rating::Timestamp in `ratings.dat`."""
    import polars

    from latentbandits.learning.logs.tables import TextFormat, read_file

    names = ("user", "movie", "rating", "timestamp")
    text = read_file(path, names, TextFormat(separator="::", columns=names))
    frame = text.select(names[:3]).cast(polars.Int64, strict=False)
    bad = frame.select(
        polars.any_horizontal(polars.all().is_null()) | ~polars.col("rating").is_between(1, 5)
    ).to_series()
    if bad.any():
        line = int(bad.arg_true()[0])
        raise ValueError(
            f"{path}, line {line + 1}: not UserID::MovieID::Rating::Timestamp with a rating from "
            f"1 to 5 ({int(bad.sum())} such lines)"
        )
    user, movie, rating = (frame[name].to_numpy() for name in names[:3])
    return user, movie, rating


def _read_movies(path: Path) -> tuple[list[int], list[str], list[list[str]]]:
    """Read lines of the form MovieID::Title::Genre|Genre|... in `movies.dat`."""
    ids, titles, genres = [], [], []
    text = path.read_text(encoding="latin-1")
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("::")
        if len(fields) != 3 or not fields[0].isdecimal() or not fields[2]:
            raise ValueError(f"{path}, line {number}: not MovieID::Title::Genres, but {line!r}")
        ids.append(int(fields[0]))
        titles.append(fields[1])
        genres.append(fields[2].split("|"))
    return ids, titles, genres


# Filtering to users and movies with many ratings: the paper's 1353 users and 1124 movies.

PASSES = 2


def keep_active(data: Ratings, more_than: int) -> Ratings:
    """Return ratings by users and of movies with more than `more_than`, filtered twice.

    Users and movies are counted at the same time in each pass. "At least", a single pass, or passes
    until nothing changes do not give the paper's numbers.
    """
    kept = np.arange(len(data.ratings))
    for _ in range(PASSES):
        active = _frequent(data.users[kept], more_than) & _frequent(data.movies[kept], more_than)
        kept = kept[active]
    if len(kept) == 0:
        raise ValueError(
            f"no user and movie have more than {more_than} ratings among {data}: "
            "choose a smaller --more-than"
        )
    users, user = np.unique(data.users[kept], return_inverse=True)
    movies, movie = np.unique(data.movies[kept], return_inverse=True)
    genres = data.genres[movies]
    present = np.flatnonzero(genres.any(axis=0))
    return Ratings(
        user,
        movie,
        data.ratings[kept],
        data.user_ids[users],
        data.movie_ids[movies],
        tuple(data.titles[m] for m in movies),
        genres[:, present],
        tuple(data.genre_names[g] for g in present),
    )


def _frequent(codes: IntArray, more_than: int) -> BoolArray:
    return np.bincount(codes)[codes] > more_than
