"""Answers of 19,840 students to questions of 100 skills, in their order."""

from functools import partial

from evidence.bench.problem import Problem, Source

HORIZON = 20
SOURCE = Source("assistments-2015/answers.csv.gz", "student", "skill", "correct", "order")
PROBLEM = Problem(
    name="assistments-2015",
    about="Students answer questions of 100 skills; a policy picks the skill of the next question.",
    unit="correct answer",
    horizon=HORIZON,
    load=partial(SOURCE.split, HORIZON),
    files=(SOURCE.file,),
)
