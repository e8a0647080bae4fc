"""Generated logs of rewards as people have them: with atoms, contaminated, and clean."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.learning.logs.rows import Log
from latentbandits.models.checks import FloatArray, IntArray

ATOMS = ("fractions", "amounts", "grades")
CONTAMINATED = ("huge", "swapped")
CONTAMINATION = 0.02
_NOISE = 0.5


class Problem(NamedTuple):
    """A log of users, and the mean rewards that they have without contamination."""

    log: Log
    means: FloatArray  # (n_states, n_actions)
    shares: FloatArray  # (n_states,)


def generate(
    kind: str,
    seed: int,
    n_users: int = 600,
    n_rounds: int = 20,
    n_states: int = 3,
    n_actions: int = 8,
) -> Problem:
    """Generate a log of one kind, logged uniformly at random.

    - `fractions`: 0 or 1, and 3% are fractions of three digits;
    - `amounts`: most are 0, the others log-normal amounts in cents;
    - `grades`: whole numbers from 0 to 100, with many at both ends;
    - `huge`: Gaussian, and 2% are 1e9;
    - `swapped`: Gaussian, and 2% are the number of the user instead;
    - `clean`: Gaussian.
    """
    rng = np.random.default_rng([seed, 77])
    shares = rng.dirichlet(np.full(n_states, 10.0))
    level = rng.uniform(0.1, 0.9, (n_states, n_actions))
    state: IntArray = rng.choice(n_states, size=n_users, p=shares)
    users = np.repeat(np.arange(n_users), n_rounds)
    actions = rng.integers(n_actions, size=len(users))
    expected, n = level[state[users], actions], len(users)
    means = level
    if kind == "fractions":
        clicks = (rng.random(n) < expected).astype(float)
        rewards = np.where(rng.random(n) < 0.03, rng.random(n).round(3), clicks)
        means = 0.97 * level + 0.03 * 0.5
    elif kind == "amounts":
        typical = rng.uniform(5.0, 20.0, (n_states, n_actions))
        amounts = typical[state[users], actions] * np.exp(0.8 * rng.standard_normal(n) - 0.32)
        rewards = np.where(rng.random(n) < 0.5 * expected, amounts, 0.0).round(2)
        means = 0.5 * level * typical
    elif kind == "grades":
        rewards = _grades(expected, rng)
        means = _grades(np.repeat(level[..., None], 20_000, axis=-1), rng).mean(axis=-1)
    else:
        rewards = expected + _NOISE * rng.standard_normal(n)
        wrong = rng.random(n) < (0.0 if kind == "clean" else CONTAMINATION)
        rewards = np.where(wrong, 1e9 if kind == "huge" else users, rewards)
    ids = tuple(map(str, range(n_users))), tuple(map(str, range(n_actions)))
    return Problem(Log(users, actions, rewards, *ids), means, shares)


def _grades(level: FloatArray, rng: np.random.Generator) -> FloatArray:
    points = np.round(100 * (level + 0.25 * rng.standard_normal(level.shape)))
    return np.clip(points, 0.0, 100.0)
