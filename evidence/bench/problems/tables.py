"""Users with ratings, ranks or answers, as published in one table each.

- assistments-2015: answers of 19,840 students to questions of 100 skills, in their order;
- jester: ratings of 100 jokes by 14,991 users, of whom 4,276 rated all (Goldberg et al. 2001);
- ml-1m: a million ratings of films by 6,040 users of MovieLens (Harper & Konstan 2015);
- ml-latest-small: 100,836 ratings of films by 610 users of MovieLens (Harper & Konstan 2015);
- sushi: full rankings of ten kinds of sushi by 2,000 people (Kamishima 2003).
"""

from pathlib import Path

import numpy as np

from evidence.bench.problem import Problem, Sizes, Source, Split, split_users
from latentbandits.learning.logs.tables import TextFormat

ASSISTMENTS = Source("assistments-2015/answers.csv.gz", "student", "skill", "correct", "order")
JESTER = Source("jester/ratings.csv.gz", "user", "joke", "rating")
ML_1M = Source(
    "ml-1m/ratings.dat", "user", "movie", "rating",
    text_format=TextFormat(separator="::", columns=("user", "movie", "rating", "time")),
)  # fmt: skip
ML_LATEST = Source("ml-latest-small/ratings.csv", "userId", "movieId", "rating", "timestamp")
SUSHI = Source("sushi/scores.csv", "user", "sushi", "score")


def load_jester(folder: Path, seed: int, sizes: Sizes) -> Split:
    """Play users who rated all jokes."""
    log = JESTER.read(folder)
    return split_users(log, np.diff(log.starts) == log.n_actions, seed, sizes)


PROBLEMS = (
    Problem.of_table(
        "assistments-2015", ASSISTMENTS, 20, "correct answer",
        "Students answer questions of 100 skills; a policy picks the skill of the next question.",
    ),
    Problem(
        "jester", "Users rate jokes from -10 to 10; those who play rated all 100.", "point", 33,
        load_jester, (JESTER.file,), forms={"all": None, "10": 10},
    ),
    Problem.of_table("ml-1m", ML_1M, 50, "star", "Users of MovieLens rate films in whole stars."),
    Problem.of_table(
        "ml-latest-small", ML_LATEST, 10, "star",
        "Users of MovieLens rate films in half stars; there are few of them.",
    ),
    Problem.of_table(
        "sushi", SUSHI, 3, "rank, 10 is best",
        "People choose among ten kinds of sushi, each once; all their ranks are known.",
        forms={"all": None},
    ),
)  # fmt: skip
