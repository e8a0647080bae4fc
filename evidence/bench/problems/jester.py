"""Ratings of 100 jokes by 14,991 users, of whom 4,276 rated all (Goldberg et al. 2001)."""

from pathlib import Path

import numpy as np

from evidence.bench.problem import Problem, Sizes, Source, Split, split_users

HORIZON = 33
SOURCE = Source("jester/ratings.csv.gz", "user", "joke", "rating")


def load(folder: Path, seed: int, sizes: Sizes) -> Split:
    """Play users who rated all jokes."""
    log = SOURCE.read(folder)
    return split_users(log, np.diff(log.starts) == log.n_actions, seed, sizes)


PROBLEM = Problem(
    name="jester",
    about="Users rate jokes from -10 to 10; those who play rated all 100.",
    unit="point",
    horizon=HORIZON,
    load=load,
    files=(SOURCE.file,),
    forms={"all": None, "10": 10},
)
