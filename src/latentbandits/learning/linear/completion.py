"""Matrix completion of a log in memory (Section 5.2, after PMF); `folded` states the objective."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from latentbandits.learning.linear.alternating import (
    CompletionSettings,
    KeptSweepPass,
    Link,
    Ratings,
    Sweep,
    alternate,
)
from latentbandits.models.checks import FloatArray, IntArray, finite_array, positive_count
from latentbandits.processors import cores


@dataclass(frozen=True, eq=False)
class Completion:
    """A completed matrix: rating(u, a) = mean + b_u + c_a + users[u]'actions[a].

    The vector of a user or action without ratings is zero, which minimises its penalty.
    """

    users: FloatArray  # (n_users, rank)
    actions: FloatArray  # (n_actions, rank)
    user_biases: FloatArray | None  # (n_users,)
    action_biases: FloatArray | None  # (n_actions,)
    mean: float
    noise: float  # standard deviation of a rating around its true value, from the residuals
    user_counts: IntArray  # (n_users,), number of ratings of each user
    action_counts: IntArray  # (n_actions,)
    history: tuple[Sweep, ...]
    link: Link = "identity"

    @property
    def rank(self) -> int:
        return int(self.users.shape[1])

    @property
    def biases(self) -> bool:
        return self.user_biases is not None

    @cached_property
    def centre(self) -> FloatArray:
        """The mean vector of the users with ratings, `(rank,)`."""
        centre: FloatArray = self.users[self.user_counts > 0].mean(axis=0)
        return centre

    @cached_property
    def user_vectors(self) -> FloatArray:
        """Rows whose products with `action_vectors` are the completed ratings, biases included.

        With biases: (u - centre, mean + b_u, 1), so the average user has a zero taste vector.
        """
        if self.user_biases is None:
            return self.users
        level = self.mean + self.user_biases
        return np.column_stack([self.users - self.centre, level, np.ones(len(self.users))])

    @cached_property
    def action_vectors(self) -> FloatArray:
        """The features of each action in a linear model of rewards.

        With biases: (v, 1, c_a + v'centre); the last is the action's popularity.
        """
        if self.action_biases is None:
            return self.actions
        popularity = self.action_biases + self.actions @ self.centre
        return np.column_stack([self.actions, np.ones(len(self.actions)), popularity])

    @cached_property
    def tastes(self) -> FloatArray:
        """Vectors of the users whose distances measure how much their ratings differ.

        With biases these are the centred vectors in the metric of the actions, without the level:
        |t_i - t_j|^2 is the mean squared difference of u'v over actions, weighted by frequency.
        """
        if self.user_biases is None:
            return self.users
        from latentbandits.learning.linear.clusters import metric_root

        root = metric_root(self.actions, self.action_counts.astype(np.float64))
        return (self.users - self.centre) @ root

    def predict(self, users: ArrayLike, actions: ArrayLike) -> FloatArray:
        """Return the completed ratings (for clicks, probabilities) of pairs of user and action."""
        pairs = self.user_vectors[np.asarray(users)], self.action_vectors[np.asarray(actions)]
        ratings: FloatArray = np.einsum("...d,...d->...", *pairs)
        if self.link == "identity":
            return ratings
        from scipy.special import expit

        return expit(ratings)


def complete(
    users: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    scatter: float = 0.0,
    n_users: int | None = None,
    n_actions: int | None = None,
    threads: int | None = None,
    callback: Callable[[Sweep], None] | None = None,
    **settings: Any,
) -> Completion:
    """Complete the user x action matrix of which `rewards` are the known entries.

    A pair of user and action that occurs twice counts twice. Alternatively an entry stands for
    several rewards of its pair: `rewards` are then their means, and `weights` their numbers. With
    `link` "logit" the log-odds of rewards are completed.

    Args:
        users: row of each reward, `(n,)`, numbered from 0.
        actions: column of each reward, `(n,)`, numbered from 0.
        rewards: known entries, `(n,)`; 0 and 1, or fractions of ones, with `link` "logit".
        weights: number of rewards that each entry stands for, `(n,)`; None: one each.
        scatter: sum of the squared distances of these rewards from their means, for the noise.
        n_users: number of rows; None: the largest number of `users` and one.
        n_actions: number of columns; None: the largest number of `actions` and one.
        threads: number of threads, which does not change the result; None: one per core.
        callback: called after each pass.
        **settings: those of `CompletionSettings`: `rank`, and `reg`, `weighting`, `biases`, `link`,
            `sweeps`, `tolerance` and `seed`, where they differ from the defaults.

    >>> fit = complete([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [4, 2, 4, 2, 4], rank=1, reg=0.01)
    >>> bool(abs(fit.predict(2, 1) - 2) < 0.1)
    True
    """
    chosen = CompletionSettings(**settings)
    if chosen.replicate is not None:
        raise ValueError(
            f"replicate is {chosen.replicate}, but users without names have no bootstrap weights: "
            "leave it out"
        )
    workers = cores() if threads is None else positive_count("threads", threads)
    r = finite_array("rewards", rewards, (1,))
    u = _codes("users", users, len(r), n_users)
    a = _codes("actions", actions, len(r), n_actions)
    shape = (n_users or int(u.max()) + 1, n_actions or int(a.max()) + 1)
    if chosen.rank > min(shape):
        raise ValueError(
            f"rank {chosen.rank} is above what the data hold: the rank of {shape[0]} users x "
            f"{shape[1]} actions is {min(shape)} at most"
        )
    w = None if weights is None else _weights(weights, len(r))
    if chosen.link == "logit" and (r.min() < 0 or r.max() > 1):
        raise ValueError(f"rewards must be from 0 to 1 for logit; got {r.min():g} to {r.max():g}")
    no_keys = np.zeros(shape[0], np.uint64)  # for a bootstrap alone
    # numpy releases the interpreter's lock. Extra threads of its linear algebra would compete
    # with these and waste a core.
    with ThreadPoolExecutor(workers) as pool, threadpool_limits(1, user_api="blas"):
        part = Ratings(u, a, r, w, scatter, shape, no_keys, pool.map)
        for sorting in [pool.submit(lambda: part.by_user), pool.submit(lambda: part.by_action)]:
            sorting.result()
        sweep = KeptSweepPass(chosen)
        found = alternate(
            lambda summariser, parameters: summariser.summarise(part, parameters),
            sweep,
            callback=callback,
        )
    return Completion(
        users=sweep.kept[0].vectors,
        actions=found.items.vectors,
        user_biases=sweep.kept[0].biases,
        action_biases=found.items.biases,
        mean=found.items.mean,
        noise=found.noise,
        user_counts=part.totals.round().astype(np.int64),
        action_counts=found.action_counts,
        history=found.history,
        link=chosen.link,
    )


def _weights(values: ArrayLike, n: int) -> FloatArray:
    weights = finite_array("weights", values, (1,))
    if len(weights) != n or weights.min() <= 0:
        raise ValueError(
            f"weights must be {n} numbers above zero, one for each reward; got {len(weights)}, the "
            f"smallest {weights.min():g}"
        )
    return weights


def _codes(name: str, values: ArrayLike, n: int, size: int | None) -> IntArray:
    """Return row or column numbers, one per reward, from 0, below `size` if it is given."""
    codes = np.asarray(values)
    if codes.ndim != 1 or not np.issubdtype(codes.dtype, np.integer):
        raise ValueError(
            f"{name} must be a list of whole numbers from 0; got {codes.dtype} of shape "
            f"{codes.shape}"
        )
    if len(codes) != n:
        raise ValueError(f"there are {n} rewards but {len(codes)} {name}: give one for each")
    if codes.min() < 0 or (size is not None and codes.max() >= size):
        wrong = codes.min() if codes.min() < 0 else codes.max()
        upper = "" if size is None else f" to {size - 1}"
        raise ValueError(f"{name} must be numbered from 0{upper}; one of them is {wrong}")
    return codes.astype(np.int64, copy=False)
