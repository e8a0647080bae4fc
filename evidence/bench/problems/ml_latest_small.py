"""100,836 ratings of films by 610 users of MovieLens (Harper & Konstan 2015)."""

from functools import partial

from evidence.bench.problem import Problem, Source

HORIZON = 10
SOURCE = Source("ml-latest-small/ratings.csv", "userId", "movieId", "rating", "timestamp")
PROBLEM = Problem(
    name="ml-latest-small",
    about="Users of MovieLens rate films in half stars; there are few of them.",
    unit="star",
    horizon=HORIZON,
    load=partial(SOURCE.split, HORIZON),
    files=(SOURCE.file,),
)
