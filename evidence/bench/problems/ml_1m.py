"""A million ratings of films by 6,040 users of MovieLens (Harper & Konstan 2015)."""

from functools import partial

from evidence.bench.problem import Problem, Source
from latentbandits.learning.logs.tables import TextFormat

HORIZON = 50
SOURCE = Source(
    "ml-1m/ratings.dat", "user", "movie", "rating",
    text_format=TextFormat(separator="::", columns=("user", "movie", "rating", "time")),
)  # fmt: skip
PROBLEM = Problem(
    name="ml-1m",
    about="Users of MovieLens rate films in whole stars.",
    unit="star",
    horizon=HORIZON,
    load=partial(SOURCE.split, HORIZON),
    files=(SOURCE.file,),
)
