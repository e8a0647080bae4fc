"""MovieLens 1M in its official layout: `ratings.dat` and `movies.dat`, latin-1, split by `::`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from latentbandits.experiments.movielens.download import (
    MOVIELENS_1M,
    Advance,
    cache_folder,
    fetch,
)
from latentbandits.models.checks import BoolArray, FloatArray, IntArray

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


def find_folder(data: str | None, start: Advance | None = None) -> Path:
    """Return the folder of the data: the given one, else the cache, downloaded if necessary."""
    return given_folder(data) or fetch(MOVIELENS_1M, cache_folder(), FILES, start)


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
    """Read UserID::MovieID::Rating::Timestamp by a CSV reader; every other column is empty."""
    import polars

    layout = f"{path} is not in the layout UserID::MovieID::Rating::Timestamp"
    try:
        with path.open("rb") as file:
            first = file.readline()
        if not first:
            raise ValueError(f"{path} cannot be read: it is empty")
        if first.count(b":") != 6:
            raise ValueError(layout)
        frame = polars.read_csv(
            path,
            separator=":",
            has_header=False,
            new_columns=["user", "_1", "movie", "_2", "rating", "_3", "timestamp"],
            schema_overrides=[polars.Int64] * 7,
            ignore_errors=True,
            truncate_ragged_lines=True,
        )
    except (polars.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if frame.width != 7:
        raise ValueError(layout)
    frame = frame.select("user", "movie", "rating")
    bad = frame.select(
        polars.any_horizontal(polars.all().is_null()) | ~polars.col("rating").is_between(1, 5)
    ).to_series()
    if bad.any():
        line = int(bad.arg_true()[0])
        raise ValueError(
            f"{path}, line {line + 1}: not UserID::MovieID::Rating::Timestamp with a rating from "
            f"1 to 5 ({int(bad.sum())} such lines)"
        )
    columns = (frame[name].to_numpy() for name in ("user", "movie", "rating"))
    user, movie, rating = columns
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
