"""Filtering to users and movies with many ratings: the paper's 1353 users and 1124 movies."""

from __future__ import annotations

import numpy as np

from latentbandits.experiments.movielens.data import Ratings
from latentbandits.models.checks import BoolArray, IntArray

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
    frequent: BoolArray = np.bincount(codes)[codes] > more_than
    return frequent
