"""Matrix completion as a fold over users (`completion.py` has the objective).

A pass solves the users of every partition against the broadcast vectors of the actions, and returns
the actions' normal equations. The vectors of users never leave their partition: they follow from
those of the actions, and are made again wherever they are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.engines.engine import Engine
from latentbandits.learning.linear.balance import balanced
from latentbandits.learning.linear.completion import Link, Sweep, level_of
from latentbandits.learning.linear.logistic_bound import half_slope
from latentbandits.learning.linear.normal_equations import (
    Equations,
    Solved,
    equations,
    solve,
)
from latentbandits.learning.linear.pairs import sum_pairs
from latentbandits.learning.linear.ridge_rows import Weighting
from latentbandits.learning.logs import Log
from latentbandits.learning.user_hash import Keys
from latentbandits.models.checks import FloatArray, IntArray

_BOUNDS = 8  # steps of the bound that a user's clicks are solved by, from zero


class Items(NamedTuple):
    """The side of the factorisation that is broadcast: offset[a] + vectors[a]'u_u + d_u."""

    vectors: FloatArray  # (n_actions, rank)
    biases: FloatArray | None  # (n_actions,)
    mean: float

    @property
    def features(self) -> FloatArray:
        """Return the factors of a user's coefficients: vectors, and with biases a one."""
        return self.vectors if self.biases is None else _with_one(self.vectors)

    @property
    def offsets(self) -> FloatArray | None:
        """Return the part of rewards that is known without the user; None: nothing."""
        return None if self.biases is None else self.biases + self.mean


@dataclass(frozen=True, eq=False)
class Ratings:
    """The ratings of a partition's users, pairs summed."""

    users: IntArray  # (n,), ascending
    actions: IntArray  # (n,)
    means: FloatArray  # (n,)
    counts: FloatArray  # (n,)
    shape: tuple[int, int]
    scatter: float
    keys: Keys

    def sparse(self, values: FloatArray) -> Any:
        """Return `values` of all entries as a matrix, users x actions."""
        from scipy.sparse import csr_array

        return csr_array((values, self.actions, self._starts), shape=self.shape)

    @cached_property
    def weights(self) -> Any:
        return self.sparse(self.counts)

    @cached_property
    def weighted(self) -> Any:
        return self.sparse(self.counts * self.means)

    @cached_property
    def totals(self) -> FloatArray:
        """Rewards of every user, `(n_users,)`."""
        return np.bincount(self.users, self.counts, minlength=self.shape[0]).astype(np.float64)

    @cached_property
    def _starts(self) -> IntArray:
        return np.searchsorted(self.users, np.arange(self.shape[0] + 1))


class PrepareRatings:
    """Makes the ratings of a partition."""

    def __call__(self, log: Log) -> Ratings:
        pairs = sum_pairs(log)
        counts = np.ones(len(pairs.means)) if pairs.counts is None else pairs.counts
        shape = (log.n_users, log.n_actions)
        return Ratings(
            pairs.users, pairs.actions, np.asarray(pairs.means), counts, shape, pairs.scatter,
            log.keys,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Settings:
    """Settings of a completion; with `replicate`, users have the weights of that bootstrap."""

    rank: int
    reg: float
    weighting: Weighting
    biases: bool
    link: Link
    seed: int
    replicate: int | None = None

    def weigh(self, keys: Keys) -> FloatArray | None:
        """Return the weight of each user."""
        if self.replicate is None:
            return None
        return user_hash.bootstrap_weights(keys, self.replicate + 1, self.seed)[:, -1]

    def ridge(self, totals: FloatArray) -> FloatArray:
        """The penalty of rows with so many rewards; a row without any has its vector at zero."""
        return self.reg * (np.ones(len(totals)) if self.weighting == "plain" else totals)


class Totals(NamedTuple):
    """Sums of the first pass."""

    counts: FloatArray  # (n_actions,): rewards
    rewards: float
    squares: float
    scatter: float
    n_users: float


class SweepSums(NamedTuple):
    """The sums of a pass."""

    items: Equations
    squares: float  # weighted squares of the ratings; of clicks the deviance
    user_gram: FloatArray  # (rank, rank): vectors of users, weighted by their ridges
    penalty: float
    vectors: FloatArray  # (rank,): of users with ratings
    n_users: float  # who have ratings


@dataclass(frozen=True, eq=False)
class TotalsPass:
    """The first pass of a completion."""

    settings: Settings
    prepare: PrepareRatings

    def summarise(self, part: Ratings, parameters: None) -> Totals:
        weigh = self.settings.weigh(part.keys)
        weigh = np.ones(part.shape[0]) if weigh is None else weigh
        own = part.counts * weigh[part.users]
        return Totals(
            np.bincount(part.actions, own, minlength=part.shape[1]).astype(np.float64),
            float(own @ part.means),
            float(own @ part.means**2),
            part.scatter,
            float(weigh.sum()),
        )


@dataclass(frozen=True, eq=False)
class SweepPass:
    """A pass: users against actions, and the equations of the actions against these users."""

    settings: Settings
    prepare: PrepareRatings
    threaded: bool = True

    def summarise(self, part: Ratings, items: Items) -> SweepSums:
        settings = self.settings
        found = users_of(part, items, settings)
        weigh = settings.weigh(part.keys)
        ridge = settings.ridge(part.totals)
        own = ridge if weigh is None else ridge * weigh
        rank = settings.rank
        gram = found.z[:, :rank].T @ (own[:, None] * found.z[:, :rank])
        penalty = float(own @ np.einsum("nd,nd->n", found.z, found.z))
        sums, squares = item_equations(part, items, found.z, settings, weigh)
        rated = (part.totals > 0).astype(np.float64)
        rated = rated if weigh is None else rated * weigh
        total = rated @ found.z[:, :rank]
        return SweepSums(sums, squares, gram, penalty, total, float(rated.sum()))


@dataclass(frozen=True, eq=False)
class FreedomPass:
    """The last pass: degrees of freedom of the users, which the noise needs."""

    settings: Settings
    prepare: PrepareRatings
    threaded: bool = True

    def summarise(self, part: Ratings, items: Items) -> float:
        trace = users_of(part, items, self.settings, freedom=True).trace
        assert trace is not None
        weigh = self.settings.weigh(part.keys)
        return float(trace.sum() if weigh is None else weigh @ trace)


@dataclass(frozen=True, eq=False)
class Folded:
    """A completion without the vectors of its users, which follow from `start`."""

    engine: Engine
    prepare: PrepareRatings
    settings: Settings
    start: Items  # the users are solved against these
    items: Items  # and these against the users
    centre: FloatArray  # (rank,): the mean vector of users with ratings
    action_counts: IntArray  # (n_actions,)
    noise: float
    history: tuple[Sweep, ...]

    @cached_property
    def vectors(self) -> Any:
        """The recipe of the vectors of users (`user_vectors.PrepareVectors`)."""
        from latentbandits.learning.linear.user_vectors import PrepareVectors, metric_root

        root = metric_root(self.items.vectors, self.action_counts.astype(np.float64))
        return PrepareVectors(self.prepare, self.settings, self.start, self.centre, root)

    @property
    def features(self) -> FloatArray:
        """The features of each action: with biases (v, 1, popularity), as `Completion` has them."""
        items = self.items
        if items.biases is None:
            return items.vectors
        popularity = items.biases + items.vectors @ self.centre
        return np.column_stack([items.vectors, np.ones(len(items.vectors)), popularity])


def complete_fold(
    engine: Engine,
    settings: Settings,
    *,
    sweeps: int = 20,
    tolerance: float = 0.0,
    start: Items | None = None,
) -> Folded:
    """Complete the matrix of a log on any engine: `sweeps` passes, and one before and after.

    `tolerance` ends earlier, once the objective falls by less than such a share of itself.
    """
    prepare = PrepareRatings()
    totals = engine.fold(TotalsPass(settings, prepare), None)
    total = float(totals.counts.sum())
    mean = level_of(totals.rewards / total, settings.link) if settings.biases else 0.0
    ridge = settings.ridge(totals.counts)
    empty = totals.counts == 0
    ridge = np.where(empty, 1.0, ridge)  # any: their vectors are zero
    current = first_items(engine.n_actions, settings, mean) if start is None else start
    history: list[Sweep] = []
    while True:
        sums = engine.fold(SweepPass(settings, prepare), current)
        solved = solve(sums.items, ridge, offset=settings.biases)
        items = _items(solved.z, settings, mean)
        if settings.link == "identity":
            squares = totals.squares + totals.scatter + float(solved.squares.sum())
            penalty = float(ridge @ np.einsum("nd,nd->n", solved.z, solved.z))
        else:
            squares = sums.squares
            own = _joined(current)
            penalty = float(ridge @ np.einsum("nd,nd->n", own, own))
        objective = squares + penalty + sums.penalty
        rmse = math.sqrt(max(squares, 0.0) / total)
        history.append(Sweep(len(history) + 1, rmse, objective))
        fallen = math.inf if len(history) == 1 else history[-2].objective - objective
        if len(history) >= sweeps or fallen < tolerance * objective:
            break
        current = items
        if settings.link == "identity":
            current = items._replace(vectors=balanced(sums.user_gram, items.vectors, ridge))
    left = 1.0
    if settings.link == "identity":
        # Of the noise that is in the ratings, the fits of each side leave about this much.
        left -= engine.fold(FreedomPass(settings, prepare), items) / total
        trace = solve(sums.items, ridge, offset=settings.biases, freedom=True).trace
        assert trace is not None
        left *= 1 - float(trace[~empty].sum()) / total
    return Folded(
        engine,
        prepare,
        settings,
        current,
        items,
        sums.vectors / sums.n_users,
        totals.counts.round().astype(np.int64),
        history[-1].rmse / math.sqrt(left),
        tuple(history),
    )


def users_of(part: Ratings, items: Items, settings: Settings, *, freedom: bool = False) -> Solved:
    """Solve the users of a partition against the actions: vectors and, behind them, biases."""
    totals = part.totals
    ridge = np.where(totals > 0, settings.ridge(totals), 1.0)
    x, offsets = items.features, items.offsets
    if settings.link == "identity":
        sums = equations(part.weights, part.weighted, x, offsets)
        return solve(sums, ridge, offset=settings.biases, freedom=freedom)
    # Clicks: each step bounds the likelihood at the last log-odds (`logistic_bound`), from zero.
    halves = part.sparse(part.counts * (part.means - 0.5))
    z = np.zeros((part.shape[0], x.shape[1]))
    rows = x[part.actions]
    along = 0.0 if offsets is None else offsets[part.actions]
    solved = Solved(z, np.zeros(len(z)), None)
    for _ in range(_BOUNDS):
        odds = np.einsum("nd,nd->n", solved.z[part.users], rows) + along
        weights = part.sparse(2 * part.counts * half_slope(np.abs(odds)))
        sums = equations(weights, halves, x, offsets)
        solved = solve(sums, ridge, offset=settings.biases)
    return solved


def item_equations(
    part: Ratings, items: Items, z: FloatArray, settings: Settings, weigh: FloatArray | None
) -> tuple[Equations, float]:
    """The actions' equations against users `z`, and the users' squares; of clicks the deviance."""
    rank = settings.rank
    x = z[:, :rank] if items.biases is None else _with_one(z[:, :rank])
    offsets = None if items.biases is None else z[:, rank] + items.mean
    weights, weighted, squares = part.weights, part.weighted, 0.0
    if settings.link == "logit":
        odds = np.einsum("nd,nd->n", z[part.users], items.features[part.actions])
        if items.offsets is not None:
            odds += items.offsets[part.actions]
        weights = part.sparse(2 * part.counts * half_slope(np.abs(odds)))
        weighted = part.sparse(part.counts * (part.means - 0.5))
        terms = part.counts * (np.logaddexp(0.0, odds) - part.means * odds)
        squares = 2 * float(terms.sum() if weigh is None else terms @ weigh[part.users])
    if weigh is not None:
        from scipy.sparse import diags_array

        scale = diags_array(weigh)
        weights, weighted = scale @ weights, scale @ weighted
    return equations(weights.T, weighted.T, x, offsets), squares


def first_items(n_actions: int, settings: Settings, mean: float) -> Items:
    """Return the random vectors that a completion begins with."""
    rng = np.random.default_rng(settings.seed)
    random = rng.standard_normal((n_actions, settings.rank)) / math.sqrt(settings.rank)
    return Items(random, np.zeros(n_actions) if settings.biases else None, mean)


def _items(z: FloatArray, settings: Settings, mean: float) -> Items:
    if not settings.biases:
        return Items(z, None, mean)
    return Items(z[:, :-1], z[:, -1], mean)


def _joined(items: Items) -> FloatArray:
    """Vectors and, behind them, biases."""
    if items.biases is None:
        return items.vectors
    return np.column_stack([items.vectors, items.biases])


def _with_one(values: FloatArray) -> FloatArray:
    return np.column_stack([values, np.ones(len(values))])
