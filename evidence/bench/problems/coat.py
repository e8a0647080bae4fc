"""Coats rated by 290 people: those they chose, and others at random (Schnabel et al. 2016)."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from evidence.bench.problem import Problem, Sizes, Source, Split, split_users

HORIZON = 5
CHOSEN = Source("coat/self_selected.csv", "user", "coat", "stars")
RANDOM = Source("coat/random.csv", "user", "coat", "stars")


def load(folder: Path, seed: int, sizes: Sizes) -> Split:
    """Learn from coats that people chose; play others with coats that were drawn for them."""
    chosen, random = CHOSEN.read(folder), RANDOM.read(folder)
    place = {coat: i for i, coat in enumerate(chosen.action_ids)}
    numbers = np.array([place.get(coat, -1) for coat in random.action_ids])[random.actions]
    random = replace(random, actions=numbers, action_ids=chosen.action_ids)
    random = random.of_events(numbers >= 0)
    everyone = np.ones(chosen.n_users, np.bool_)
    train = split_users(chosen, everyone, seed, sizes).train
    test = np.flatnonzero(~np.isin(random.keys, train.keys))
    return Split(train, random.of_users(test))


PROBLEMS = (
    Problem(
        "coat",
        "People rate coats; models learn from coats that people chose, and play random ones.",
        "star", HORIZON, load, (CHOSEN.file, RANDOM.file), forms={"all": None, "10": 10},
    ),
)  # fmt: skip
