"""Generated users of four kinds that want opposite things, and users without kinds."""

import numpy as np

from evidence.bench.problem import Problem
from latentbandits.models.checks import FloatArray

N_KINDS, KIND_ACTIONS = 4, 20
LIKED, OTHER = (0.06, 0.16), (0.002, 0.015)
"""Ranges of the click rates of actions that a kind likes, and of those that it does not."""

TASTE_ACTIONS = 10
STRENGTH = 8.0
"""Ones and zeros that the beta distribution of a user's rates is worth."""


def draw_kinds(n_users: int, rng: np.random.Generator) -> FloatArray:
    """Return click rates: each kind likes a quarter of the actions, and no other kind does."""
    fixed = np.random.default_rng(26)
    rates = fixed.uniform(*OTHER, (N_KINDS, KIND_ACTIONS))
    for kind in range(N_KINDS):
        rates[kind, kind::N_KINDS] = fixed.uniform(*LIKED, KIND_ACTIONS // N_KINDS)
    return rates[rng.integers(N_KINDS, size=n_users)]


def draw_tastes(n_users: int, rng: np.random.Generator) -> FloatArray:
    """Return rates of every user: independent beta variables around each action's mean."""
    means = np.linspace(0.25, 0.5, TASTE_ACTIONS)
    return rng.beta(STRENGTH * means, STRENGTH * (1 - means), (n_users, TASTE_ACTIONS))


PROBLEMS = (
    Problem.generated(
        "generated-kinds", draw_kinds, 50, "click",
        "Generated users of four kinds with different favourites, who click rarely.",
    ),
    Problem.generated(
        "generated-one-kind", draw_tastes, 40, "success",
        "Generated users with tastes of their own, which no other taste of theirs predicts.",
    ),
)  # fmt: skip
