"""Generated users of four kinds that want opposite things, and click rarely."""

from functools import partial

import numpy as np

from evidence.bench.problem import Problem, drawn
from latentbandits.models.checks import FloatArray

HORIZON, LOGGED = 50, 60
N_KINDS, N_ACTIONS = 4, 20
LIKED, OTHER = (0.06, 0.16), (0.002, 0.015)
"""Ranges of the click rates of actions that a kind likes, and of those that it does not."""


def draw(n_users: int, rng: np.random.Generator) -> FloatArray:
    """Return click rates: each kind likes a quarter of the actions, and no other kind does."""
    fixed = np.random.default_rng(26)
    rates = fixed.uniform(*OTHER, (N_KINDS, N_ACTIONS))
    for kind in range(N_KINDS):
        rates[kind, kind::N_KINDS] = fixed.uniform(*LIKED, N_ACTIONS // N_KINDS)
    return rates[rng.integers(N_KINDS, size=n_users)]


PROBLEM = Problem(
    name="generated-kinds",
    about="Generated users of four kinds with different favourites, who click rarely.",
    unit="click",
    horizon=HORIZON,
    load=partial(drawn, draw, LOGGED, HORIZON),
    forms={"all": None},
    replacement=True,
)
