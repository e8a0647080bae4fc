"""Full rankings of ten kinds of sushi by 2,000 people (Kamishima 2003)."""

from functools import partial

from evidence.bench.problem import Problem, Source

HORIZON = 3
SOURCE = Source("sushi/scores.csv", "user", "sushi", "score")
PROBLEM = Problem(
    name="sushi",
    about="People choose among ten kinds of sushi, each once; all their ranks are known.",
    unit="rank, 10 is best",
    horizon=HORIZON,
    load=partial(SOURCE.split, HORIZON),
    files=(SOURCE.file,),
    forms={"all": None},
)
