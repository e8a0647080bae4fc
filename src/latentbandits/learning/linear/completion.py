"""Matrix completion by regularised least squares (Section 5.2, after PMF), or logistic.

Alternating least squares on the objective

    sum over entries of n (r - mean - b_u - c_a - u'v)^2
        + reg (sum_u w_u (|u|^2 + b_u^2) + sum_a w_a (|v|^2 + c_a^2)),

with n the number of rewards of an entry, and weights w equal to one ("plain") or to the number of
rewards of the row ("counts"). mean, b and c are zero without biases. Between sweeps the two sides
are balanced. Clicks (`link="logit"`) have the same form, with -2 log likelihood of a logistic model
instead of the squares; with the bound of Jaakkola & Jordan (2000) every half sweep is a weighted
least squares problem, and the objective never rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from latentbandits.learning.linear.logistic_bound import LogisticBound
from latentbandits.learning.linear.ridge_rows import Factors, Rows, Weighting
from latentbandits.models.checks import (
    FloatArray,
    IntArray,
    finite_array,
    positive_count,
    positive_number,
)
from latentbandits.processors import cores

# Rescaling of a factorisation that minimises its penalty and keeps its products.


def balance(
    users: FloatArray, actions: FloatArray, user_ridge: FloatArray, action_ridge: FloatArray
) -> FloatArray:
    """Return the actions' vectors of the factorisation with the same products and least penalty.

    Over all transforms T (users T^-1', actions T), the penalty is least if users'R users equals
    actions'R actions, with R the ridges. With users'R users = C C', this holds if the vectors
    actions C are scaled along each principal axis to the square root of their length there. T is
    determined up to a rotation; the symmetric T is returned, which does not depend on the signs of
    the axes. Alternating least squares converge to the same point, but spend more than half of
    their sweeps on it.

    >>> balance(np.array([[8.0]]), np.array([[2.0]]), np.ones(1), np.ones(1))
    array([[4.]])
    """
    return balanced(_gram(users, user_ridge), actions, action_ridge)


def balanced(user_gram: FloatArray, actions: FloatArray, action_ridge: FloatArray) -> FloatArray:
    """Return the balanced vectors of the actions, given users'R users."""
    values, axes = np.linalg.eigh(user_gram)
    change = axes * np.sqrt(np.maximum(values, 0.0))
    change = change @ np.linalg.eigh(_gram(actions @ change, action_ridge))[1]
    squares = np.einsum("de,de->e", change, _gram(actions, action_ridge) @ change)
    root = np.sqrt(np.sqrt(np.maximum(squares, 0.0)))
    change = np.divide(change, root, out=np.zeros_like(change), where=root > 0)
    values, axes = np.linalg.eigh(change @ change.T)
    moved: FloatArray = actions @ (axes * np.sqrt(np.maximum(values, 0.0)) @ axes.T)
    return moved


def _gram(vectors: FloatArray, weights: FloatArray) -> FloatArray:
    gram: FloatArray = vectors.T @ (weights[:, None] * vectors)
    return gram


Link = Literal["identity", "logit"]


class Sweep(NamedTuple):
    """The objective and the error after one pass over both sides."""

    number: int
    rmse: float  # for clicks, the root of the mean deviance
    objective: float


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
        tastes: FloatArray = (self.users - self.centre) @ root
        return tastes

    def predict(self, users: ArrayLike, actions: ArrayLike) -> FloatArray:
        """Return the completed ratings (for clicks, probabilities) of pairs of user and action."""
        pairs = self.user_vectors[np.asarray(users)], self.action_vectors[np.asarray(actions)]
        ratings: FloatArray = np.einsum("...d,...d->...", *pairs)
        return ratings if self.link == "identity" else _expit(ratings)


def complete(
    users: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    *,
    rank: int,
    reg: float = 1.0,
    weighting: Weighting = "plain",
    biases: bool = False,
    link: Link = "identity",
    weights: ArrayLike | None = None,
    scatter: float = 0.0,
    sweeps: int = 20,
    tolerance: float = 0.0,
    n_users: int | None = None,
    n_actions: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    callback: Callable[[Sweep], None] | None = None,
) -> Completion:
    """Complete the user x action matrix of which `rewards` are the known entries.

    A pair of user and action that occurs twice counts twice. Alternatively an entry stands for
    several rewards of its pair: `rewards` are then their means, and `weights` their numbers. With
    `link` "logit" the log-odds of rewards are completed.

    Args:
        users: row of each reward, `(n,)`, numbered from 0.
        actions: column of each reward, `(n,)`, numbered from 0.
        rewards: known entries, `(n,)`; 0 and 1, or fractions of ones, with `link` "logit".
        rank: rank of the factorisation.
        reg: factor of the penalty.
        weighting: weights w of the penalty: "plain" is one, "counts" the number of rewards of a
            row.
        biases: whether rows and columns have levels of their own.
        link: "identity", or "logit" for clicks.
        weights: number of rewards that each entry stands for, `(n,)`; None: one each.
        scatter: sum of the squared distances of these rewards from their means, for the noise.
        sweeps: largest number of passes.
        tolerance: relative decrease of the objective below which passes end.
        n_users: number of rows; None: the largest number of `users` and one.
        n_actions: number of columns; None: the largest number of `actions` and one.
        seed: of the first vectors.
        threads: number of threads, which does not change the result; None: one per core.
        callback: called after each pass.

    >>> fit = complete([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [4, 2, 4, 2, 4], rank=1, reg=0.01)
    >>> bool(abs(fit.predict(2, 1) - 2) < 0.1)
    True
    """
    rank, sweeps = positive_count("rank", rank), positive_count("sweeps", sweeps)
    reg = positive_number("reg", reg)
    if weighting not in ("plain", "counts"):
        raise ValueError(f"weighting must be 'plain' or 'counts'; got {weighting!r}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be a number of at least zero; got {tolerance}")
    workers = cores() if threads is None else positive_count("threads", threads)
    r = finite_array("rewards", rewards, (1,))
    u = _codes("users", users, len(r), n_users)
    a = _codes("actions", actions, len(r), n_actions)
    shape = (n_users or int(u.max()) + 1, n_actions or int(a.max()) + 1)
    if rank > min(shape):
        raise ValueError(
            f"rank {rank} is above what the data hold: the rank of {shape[0]} users x "
            f"{shape[1]} actions is {min(shape)} at most"
        )
    w = None if weights is None else _weights(weights, len(r))
    if link == "logit" and (r.min() < 0 or r.max() > 1):
        raise ValueError(f"rewards must be from 0 to 1 for logit; got {r.min():g} to {r.max():g}")
    if link == "logit" and w is None:
        w = np.ones(len(r))
    total = float(len(r) if w is None else w.sum())
    mean = level_of(float(np.average(r, weights=w)), link) if biases else 0.0
    centred = r - mean if biases and link == "identity" else r
    likelihood = LogisticBound(mean) if link == "logit" else None
    vectors = np.random.default_rng(seed).standard_normal((shape[1], rank)) / math.sqrt(rank)
    start = Factors(vectors, np.zeros(shape[1]) if biases else None)
    current = Factors(np.zeros((shape[0], rank)), np.zeros(shape[0]) if biases else None)
    history: list[Sweep] = []
    # numpy releases the interpreter's lock. Extra threads of its linear algebra would compete
    # with these and waste a core.
    with ThreadPoolExecutor(workers) as pool, threadpool_limits(1, user_api="blas"):
        by_user, by_action = pool.map(
            lambda rows, columns, shape: Rows.from_entries(
                rows, columns, centred, shape, reg, weighting, w
            ),
            (u, a),
            (a, u),
            (shape, shape[::-1]),
        )
        while True:
            user_side, _, user_penalty = by_user.solve(start, pool.map, likelihood, current)
            action_side, squares, penalty = by_action.solve(user_side, pool.map, likelihood, start)
            if likelihood is None:
                squares += scatter
            else:
                squares = likelihood.deviance(u, a, r, w, user_side, action_side)
            objective = squares + penalty + user_penalty
            rmse = math.sqrt(max(squares, 0.0) / total)
            history.append(Sweep(len(history) + 1, rmse, objective))
            if callback is not None:
                callback(history[-1])
            fallen = math.inf if len(history) == 1 else history[-2].objective - objective
            if len(history) == sweeps or fallen < tolerance * objective:
                break
            start, current = action_side, user_side
            if likelihood is None:
                sides = user_side.vectors, action_side.vectors
                balanced = balance(*sides, by_user.ridge, by_action.ridge)
                start = action_side._replace(vectors=balanced)
        left = 1.0
        if likelihood is None:
            # The fits of both sides absorb part of the noise; about this fraction is left.
            left -= float(by_user.freedom(action_side, pool.map).sum()) / total
            left *= 1 - float(by_action.freedom(user_side, pool.map).sum()) / total
    return Completion(
        users=user_side.vectors,
        actions=action_side.vectors,
        user_biases=user_side.biases,
        action_biases=action_side.biases,
        mean=mean,
        noise=history[-1].rmse / math.sqrt(left),
        user_counts=by_user.counts,
        action_counts=by_action.counts,
        history=tuple(history),
        link=link,
    )


def level_of(mean: float, link: Link) -> float:
    """Return the constant of a completion with biases: the mean, or its log-odds."""
    if link == "identity":
        return mean
    inside = min(max(mean, 1e-6), 1 - 1e-6)
    return math.log(inside / (1 - inside))


def _expit(values: FloatArray) -> FloatArray:
    from scipy.special import expit

    probabilities: FloatArray = expit(values)
    return probabilities


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
