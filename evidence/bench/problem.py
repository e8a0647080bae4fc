"""A problem of the benchmark as data: who learns, who plays, and what a round offers."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import Log, read_log, user_hash
from latentbandits.learning.assess import replay
from latentbandits.learning.logs.tables import TextFormat
from latentbandits.models.checks import FloatArray, IntArray

_SPLIT = 1_000  # added to the seed of the split, which differs from the fit's own


class Sizes(NamedTuple):
    """The largest numbers of users that are learned from and played."""

    train: int
    test: int


STANDARD, SHORT = Sizes(2_000, 1_000), Sizes(400, 200)


class Split(NamedTuple):
    """Users to learn from, and other users who are played; both have the same actions.

    If the rows of `test` belong to lists, a round offers the next list. Otherwise it offers rows
    that the user was not yet shown.
    """

    train: Log
    test: Log


Loader = Callable[[Path, int, Sizes], Split]
"""It takes the folder of the data, the seed and the sizes. Worker processes import it by name."""

Draw = Callable[[int, np.random.Generator], FloatArray]
"""`draw(n_users, rng)` returns the means of generated users' rewards, `(n_users, n_actions)`."""


@dataclass(frozen=True)
class Problem:
    """A problem: its users, their rewards, and how long a session is.

    Args:
        name: what `--problems` calls it.
        about: a sentence: who the users are, and which rewards of theirs are known.
        unit: of a reward.
        horizon: rounds of a session. Only users with three rows for each round are played.
        load: reads the data and splits the users by a hash of their ids.
        files: the files that it reads; none: the users are generated.
        forms: what a round offers, by name: at most so many of the user's own rows that were not
            shown yet; None: all of them. If rows belong to lists, a round offers the next list.
        replacement: whether an action can be chosen again.
    """

    name: str
    about: str
    unit: str
    horizon: int
    load: Loader
    files: tuple[str, ...] = ()
    forms: Mapping[str, int | None] = field(default_factory=lambda: {"10": 10, "50": 50})
    replacement: bool = False

    @classmethod
    def of_table(
        cls, name: str, source: Source, horizon: int, unit: str, about: str, **more: Any
    ) -> Problem:
        """Return a problem with the users of a table, split by a hash."""
        load = partial(source.split, horizon)
        return cls(name, about, unit, horizon, load, (source.file,), **more)

    @classmethod
    def generated(cls, name: str, draw: Draw, horizon: int, unit: str, about: str) -> Problem:
        """Return a problem of users whose rewards are 0 or 1; see `drawn`."""
        load, forms = partial(drawn, draw, LOGGED, horizon), {"all": None}
        return cls(name, about, unit, horizon, load, forms=forms, replacement=True)


def archive(folder: Path, file: str) -> Path:
    """Return where the official archive with this file would be: NAME.zip for NAME/..."""
    return folder / f"{Path(file).parts[0]}.zip"


@contextmanager
def opened(folder: Path, file: str) -> Iterator[Path]:
    """Yield the path of a file, which is taken out of the archive if it is not in the folder."""
    if (folder / file).is_file() or not archive(folder, file).is_file():
        yield folder / file
        return
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(archive(folder, file)) as zipped:
        yield Path(zipped.extract(file, scratch))


@dataclass(frozen=True)
class Source:
    """A table of users, actions and rewards in a folder of data."""

    file: str
    user: str
    action: str
    reward: str
    order: str | None = None
    text_format: TextFormat | None = None

    def read(self, folder: Path, seed: int = 0) -> Log:
        """Return the table as a log; the seed is for sources that draw users."""
        more: dict[str, Any] = {}
        if self.text_format is not None:
            more["text_format"] = self.text_format
        with opened(folder, self.file) as path:
            return read_log(path, self.user, self.action, self.reward, order=self.order, **more)

    def split(self, horizon: int, folder: Path, seed: int, sizes: Sizes) -> Split:
        """Play a part of the users who have rows for `horizon` rounds, and learn from others."""
        log = self.read(folder, seed)
        return split_users(log, np.diff(log.starts) >= replay.SHARE * horizon, seed, sizes)


def split_users(log: Log, playable: Any, seed: int, sizes: Sizes) -> Split:
    """Split users by a hash of their ids: half of the `playable` ones at most are played."""
    able = np.flatnonzero(playable)
    n_test = min(sizes.test, len(able) // 2)
    test = able[user_hash.held_out(log.keys[able], n_test, seed + _SPLIT)]
    others = np.setdiff1d(np.arange(log.n_users), test)
    train = others[user_hash.held_out(log.keys[others], sizes.train, seed + _SPLIT)]
    return Split(log.of_users(train), log.of_users(test))


def table_log(rewards: FloatArray, action_ids: tuple[str, ...], prefix: str = "user") -> Log:
    """Return rewards `(n_users, n_rounds, n_actions)` of every action in every round as lists.

    >>> table_log(np.zeros((2, 3, 2)), ("a", "b")).lists
    array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    """
    n_users, n_rounds, n_actions = rewards.shape
    return Log(
        np.repeat(np.arange(n_users), n_rounds * n_actions),
        np.tile(np.arange(n_actions), n_users * n_rounds),
        rewards.ravel(),
        tuple(f"{prefix} {i}" for i in range(n_users)),
        action_ids,
        lists=np.repeat(np.arange(n_users * n_rounds), n_actions),
    )


def logged(table: Log, n_actions: int, rng: np.random.Generator) -> Log:
    """Return the rows of uniformly random actions: one of each list of `table_log`.

    >>> log = logged(table_log(np.zeros((2, 3, 4)), tuple("abcd")), 4, np.random.default_rng(0))
    >>> log.n_events
    6
    """
    first = np.arange(0, table.n_events, n_actions)
    chosen = np.zeros(table.n_events, np.bool_)
    chosen[first + rng.integers(n_actions, size=len(first))] = True
    kept = table.of_events(chosen)
    return Log(kept.users, kept.actions, kept.rewards, kept.user_ids, kept.action_ids)


LOGGED = 60
"""Rounds of a generated user whom models are learned from."""


def drawn(draw: Draw, n_logged: int, horizon: int, folder: Path, seed: int, sizes: Sizes) -> Split:
    """Return generated users with rewards of 0 and 1; the drawn means are P(1)."""
    rng = np.random.default_rng([seed, n_logged])
    parts = []
    test, train = (sizes.test, horizon, "test"), (sizes.train, n_logged, "train")
    for n_users, n_rounds, prefix in (train, test):
        means = draw(n_users, rng)
        shape = (n_users, n_rounds, means.shape[1])
        rewards = (rng.random(shape) < means[:, None]).astype(np.float64)
        ids = tuple(f"action {a}" for a in range(means.shape[1]))
        parts.append(table_log(rewards, ids, prefix))
    return Split(logged(parts[0], parts[0].n_actions, rng), parts[1])


def by_hash(log: Log, size: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return the indices of `size` users chosen by hash, and the indices of all others."""
    chosen = user_hash.held_out(log.keys, size, seed + _SPLIT)
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)
