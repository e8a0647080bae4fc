"""Impressions of clothes with clicks, of Open Bandit's small sample (Saito et al. 2020).

The log has no users: people with the same four attributes stand for one.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from evidence.bench.problem import Problem, Sizes, Split, split_users
from latentbandits.learning import Log, read_log

HORIZON = 10
FILES = ("open-bandit-men/thompson.csv", "open-bandit-men/uniform.csv")
ATTRIBUTES = [f"user_feature_{i}" for i in range(4)]


def load(folder: Path, seed: int, sizes: Sizes) -> Split:
    """Learn from what a Thompson sampler showed, and play other groups with random impressions."""
    chosen, random = (_read(folder / file) for file in FILES)
    ids = tuple(sorted({*chosen.action_ids, *random.action_ids}, key=int))
    chosen, random = _numbered(chosen, ids), _numbered(random, ids)
    split = split_users(random, np.diff(random.starts) >= 3 * HORIZON, seed, sizes)
    train = np.flatnonzero(~np.isin(chosen.keys, split.test.keys))
    return Split(chosen.of_users(train), split.test)


def _read(file: Path) -> Log:
    table = pl.read_csv(file).with_columns(pl.concat_str(ATTRIBUTES, separator=" ").alias("group"))
    return read_log(table.select("group", "item_id", "click"), "group", "item_id", "click")


def _numbered(log: Log, ids: tuple[str, ...]) -> Log:
    place = np.array([ids.index(item) for item in log.action_ids])
    return replace(log, actions=place[log.actions], action_ids=ids)


PROBLEMS = (
    Problem(
        "open-bandit-men",
        "Groups of people see clothes in a shop; models learn from a Thompson sampler's log, and "
        "play impressions of a random one.",
        "click", HORIZON, load, FILES, forms={"10": 10},
    ),
)  # fmt: skip
