"""The vectors of a partition's users, computed from the actions' vectors when they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from latentbandits.learning.linear.folded import Items, PrepareRatings, Settings, users_of
from latentbandits.learning.linear.ridge_rows import joined
from latentbandits.learning.linear.variational import Uncertain, posterior_of_users
from latentbandits.learning.logs import Log
from latentbandits.learning.user_hash import Keys
from latentbandits.models.checks import BoolArray, FloatArray


class Vectors(NamedTuple):
    """Vectors of a partition's users with ratings."""

    vectors: FloatArray  # (n, d): their products with the actions' features are rewards
    tastes: FloatArray  # (n, rank): their distances measure how much rewards differ
    weights: FloatArray  # (n,): weight of each user
    keys: Keys
    covariances: FloatArray | None = None  # (n, d, d): posterior covariances

    def select(self, chosen: BoolArray) -> Vectors:
        """Return the vectors of the users marked in `chosen`."""
        covariances = None if self.covariances is None else self.covariances[chosen]
        vectors, tastes = self.vectors[chosen], self.tastes[chosen]
        return Vectors(vectors, tastes, self.weights[chosen], self.keys[chosen], covariances)


@dataclass(frozen=True, eq=False)
class PrepareVectors:
    """A callable that computes the vectors of a partition's users from the actions' vectors."""

    prepare: PrepareRatings
    settings: Settings
    start: Items  # the users are solved for given these
    centre: FloatArray  # (rank,)
    root: FloatArray  # (rank, rank): the metric of the actions
    uncertain: Uncertain | None = None  # set by a variational factorisation

    def __call__(self, log: Log) -> Vectors:
        settings = self.settings
        part = self.prepare(log)
        spread = None
        if self.uncertain is None:
            z = joined(users_of(part, self.start, settings))
        else:
            z, spread = posterior_of_users(part, self.uncertain)
        weigh = settings.weigh(part.keys)
        weigh = np.ones(len(z)) if weigh is None else weigh
        there = (part.totals > 0) & (weigh > 0)
        z, weigh, keys = z[there], weigh[there], part.keys[there]
        spread = None if spread is None else spread[there]
        if not settings.biases:
            return Vectors(z, z, weigh, keys, spread)
        centred = z[:, :-1] - self.centre
        level = self.start.mean + z[:, -1]
        vectors = np.column_stack([centred, level, np.ones(len(z))])
        if spread is not None:  # the coefficient of an action's popularity is known
            spread = np.pad(spread, ((0, 0), (0, 1), (0, 1)))
        return Vectors(vectors, centred @ self.root, weigh, keys, spread)


def metric_root(actions: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the square root of the mean of v v' over actions, weighted by `counts`."""
    weights = counts / counts.sum()
    values, axes = np.linalg.eigh(actions.T @ (weights[:, None] * actions))
    root: FloatArray = axes * np.sqrt(np.maximum(values, 0.0)) @ axes.T
    return root
