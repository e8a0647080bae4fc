"""A folder in MovieLens 1M's official layout with generated ratings, and where the real one is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from latentbandits.learning.generate import GeneratedRatings, generate_ratings

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "ml-1m"

needs_real_data = pytest.mark.skipif(
    not (REAL / "ratings.dat").is_file(),
    reason="THE REAL DATA ARE NOT HERE: MovieLens 1M is expected in ../shared/data/ml-1m",
)

GENRES = ("Action", "Comedy", "Drama", "Horror", "War", "Western")


def make(n_users=150, n_movies=60, seed=0) -> GeneratedRatings:
    return generate_ratings(
        n_users=n_users,
        n_actions=n_movies,
        n_states=3,
        density=0.4,
        n_groups=len(GENRES),
        separation=1.5,
        seed=seed,
    )


def write(folder: Path, made: GeneratedRatings) -> Path:
    """Ids are not consecutive, titles hold colons and accents, and one movie has no ratings."""
    folder.mkdir(parents=True, exist_ok=True)
    stars = np.clip(np.rint(made.rewards), 1, 5).astype(int)
    ratings = [
        f"{2 * u + 1}::{3 * m + 2}::{r}::0\n"
        for u, m, r in zip(made.users, made.actions, stars, strict=True)
    ]
    (folder / "ratings.dat").write_text("".join(ratings), encoding="latin-1")
    movies = [
        f"{3 * m + 2}::Film: N\xfamero {m} (1999)::{'|'.join(np.array(GENRES)[row])}\n"
        for m, row in enumerate(made.groups)
    ]
    movies.append("9999::Nobody Saw It (2000)::Documentary\n")
    (folder / "movies.dat").write_text("".join(movies), encoding="latin-1")
    (folder / "README").write_text("generated\n")
    return folder
