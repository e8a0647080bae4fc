"""Generated users who differ, but not in kinds: each action has a taste of its own."""

from functools import partial

import numpy as np

from evidence.bench.problem import Problem, drawn
from latentbandits.models.checks import FloatArray

HORIZON, LOGGED = 40, 60
N_ACTIONS = 10
STRENGTH = 8.0
"""Ones and zeros that the beta distribution of a user's rates is worth."""


def draw(n_users: int, rng: np.random.Generator) -> FloatArray:
    """Return rates of every user: independent beta variables around each action's mean."""
    means = np.linspace(0.25, 0.5, N_ACTIONS)
    return rng.beta(STRENGTH * means, STRENGTH * (1 - means), (n_users, N_ACTIONS))


PROBLEM = Problem(
    name="generated-one-kind",
    about="Generated users with tastes of their own, which no other taste of theirs predicts.",
    unit="success",
    horizon=HORIZON,
    load=partial(drawn, draw, LOGGED, HORIZON),
    forms={"all": None},
    replacement=True,
)
