"""Matrix completion as a fold over users; `completion.py` states the objective.

A pass solves for the users of every partition given the broadcast vectors of the actions, and
returns the actions' normal equations. Users' vectors are never stored: they are functions of the
actions' vectors, and are computed again when they are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.backends.backend import Engine
from latentbandits.learning.linear.completion import Link, Sweep, balanced, level_of
from latentbandits.learning.linear.logistic_bound import LogisticBound
from latentbandits.learning.linear.ridge_rows import Equations, Factors, Rows, Weighting, joined
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.user_hash import Keys
from latentbandits.models.checks import FloatArray, IntArray

if TYPE_CHECKING:
    from latentbandits.learning.linear.variational import Uncertain


# The rewards of a log summed by pair of user and action; repeated pairs get larger weights.


class Pairs(NamedTuple):
    """Distinct pairs of user and action, sorted by user and then by action."""

    users: IntArray  # (n_pairs,)
    actions: IntArray  # (n_pairs,)
    means: FloatArray  # (n_pairs,): mean reward of the pair
    counts: FloatArray | None  # (n_pairs,): number of rewards of the pair; None means one each
    scatter: float  # sum over all rewards of their squared distance from their pair's mean


def sum_pairs(log: Log) -> Pairs:
    """Sum the rewards of every pair that occurs in `log`.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> log = read_log({"u": [1, 1, 2], "a": ["x", "x", "y"], "r": [1, 3, 5]}, "u", "a", "r")
    >>> pairs = sum_pairs(log)
    >>> pairs.means, pairs.counts, pairs.scatter
    (array([2., 5.]), array([2., 1.]), 2.0)
    """
    order = _by_pair(log)
    users, actions = log.users[order], log.actions[order]
    first = np.ones(log.n_events, np.bool_)  # the first row of each pair
    first[1:] = (users[1:] != users[:-1]) | (actions[1:] != actions[:-1])
    if first.all():
        return Pairs(log.users, log.actions, log.rewards, None, 0.0)
    which = np.empty(log.n_events, np.int64)  # the pair of each row
    which[order] = np.cumsum(first) - 1
    counts = np.bincount(which).astype(np.float64)
    means = np.bincount(which, log.rewards) / counts
    scatter = float(np.sum((log.rewards - means[which]) ** 2))
    return Pairs(users[first], actions[first], means, counts, scatter)


def _by_pair(log: Log) -> IntArray:
    """Return the positions of the rows sorted by user and then by action.

    The rows of a log are sorted by user. Each user's rows are sorted alone, as the columns of a
    sparse matrix, because the time per row of one sort of all rows grows with their number.
    """
    from scipy.sparse import csr_array

    shape = (log.n_users, log.n_actions)
    entries = np.arange(log.n_events), log.actions, log.starts
    rows = csr_array(entries, shape=shape, copy=True)  # sorted in place
    rows.sort_indices()
    order: IntArray = rows.data
    return order


_BOUNDS = 8  # iterations of the logistic bound for a user's clicks, from zero


class Items(NamedTuple):
    """The broadcast side of the factorisation: offset[a] + vectors[a]'u_u + d_u."""

    vectors: FloatArray  # (n_actions, rank)
    biases: FloatArray | None  # (n_actions,)
    mean: float

    @property
    def factors(self) -> Factors:
        """The vectors and biases of the actions."""
        return Factors(self.vectors, self.biases)

    @property
    def known(self) -> Factors:
        """The known side when users are solved for; its biases include the mean."""
        return Factors(self.vectors, None if self.biases is None else self.biases + self.mean)


@dataclass(frozen=True, eq=False)
class Ratings:
    """The ratings of a partition's users, with the rewards of each pair summed."""

    users: IntArray  # (n,), ascending
    actions: IntArray  # (n,)
    means: FloatArray  # (n,)
    counts: FloatArray | None  # (n,); None means one each
    shape: tuple[int, int]
    scatter: float
    keys: Keys

    @cached_property
    def by_user(self) -> Rows:
        return Rows.from_entries(
            self.users, self.actions, self.means, self.shape, 1.0, "plain", self.counts
        )

    @cached_property
    def by_action(self) -> Rows:
        shape = self.shape[::-1]
        return Rows.from_entries(
            self.actions, self.users, self.means, shape, 1.0, "plain", self.counts
        )

    @cached_property
    def totals(self) -> FloatArray:
        """Number of rewards of every user, `(n_users,)`."""
        return np.bincount(self.users, self.counts, minlength=self.shape[0]).astype(np.float64)

    def weights(self, weigh: FloatArray) -> FloatArray:
        """Return the weight of each entry `(n,)`, given users' weights `weigh`."""
        user_weights: FloatArray = weigh[self.users]
        return user_weights if self.counts is None else user_weights * self.counts


class PrepareRatings:
    """A callable that turns a partition's log into ratings."""

    def __call__(self, log: Log) -> Ratings:
        pairs = sum_pairs(log)
        shape = (log.n_users, log.n_actions)
        return Ratings(
            pairs.users, pairs.actions, np.asarray(pairs.means), pairs.counts, shape,
            pairs.scatter, log.keys,
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

    @property
    def bound(self) -> LogisticBound | None:
        """The bound on the likelihood of clicks; the mean is part of the known side."""
        return LogisticBound(0.0) if self.link == "logit" else None

    def weigh(self, keys: Keys) -> FloatArray | None:
        """Return the bootstrap weight of each user, or None without a bootstrap."""
        if self.replicate is None:
            return None
        return user_hash.bootstrap_weights(keys, self.replicate + 1, self.seed)[:, -1]

    def ridge(self, totals: FloatArray) -> FloatArray:
        """Return the penalties of rows with `totals` rewards; without rewards a vector is zero."""
        return self.reg * (np.ones(len(totals)) if self.weighting == "plain" else totals)

    def action_ridge(self, totals: FloatArray) -> FloatArray:
        """Return the penalties of every coefficient of the actions, `(n_actions, d)`.

        Clicks have a fixed penalty on the popularity of an action, as if its log-odds had a
        standard deviation of one among actions. The penalty of vectors would draw all actions
        together, by the same share for any number of rewards if it is weighted by counts, and the
        first choices of new users depend on popularity alone.
        """
        d = self.rank + self.biases
        ridge = np.where(totals == 0, 1.0, self.ridge(totals))  # without rewards, z is zero
        of_coefficients = np.repeat(ridge[:, None], d, axis=1)
        if self.biases and self.link == "logit":
            of_coefficients[:, -1] = 1.0
        return of_coefficients


class Totals(NamedTuple):
    """The sums of the first pass."""

    counts: FloatArray  # (n_actions,): number of rewards
    rewards: float
    scatter: float
    n_users: float


class SweepSums(NamedTuple):
    """The sums of a pass."""

    items: Equations
    deviance: float  # for clicks
    user_gram: FloatArray  # (rank, rank): Gram matrix of users' vectors, weighted by their ridges
    penalty: float
    vectors: FloatArray  # (rank,): sum over users with ratings
    n_users: float  # number of users with ratings


@dataclass(frozen=True, eq=False)
class TotalsPass:
    """The first pass of a completion."""

    settings: Settings
    prepare: PrepareRatings

    def summarise(self, part: Ratings, parameters: None) -> Totals:
        weigh = self.settings.weigh(part.keys)
        weigh = np.ones(part.shape[0]) if weigh is None else weigh
        weights = part.weights(weigh)
        return Totals(
            np.bincount(part.actions, weights, minlength=part.shape[1]).astype(np.float64),
            float(weights @ part.means),
            part.scatter,
            float(weigh.sum()),
        )


@dataclass(frozen=True, eq=False)
class SweepPass:
    """A pass that solves for users given actions, and returns the equations of the actions."""

    settings: Settings
    prepare: PrepareRatings
    threaded: bool = True

    def summarise(self, part: Ratings, items: Items) -> SweepSums:
        settings = self.settings
        users = users_of(part, items, settings)
        weigh = settings.weigh(part.keys)
        ridge = settings.ridge(part.totals)
        ridge = ridge if weigh is None else ridge * weigh
        gram = users.vectors.T @ (ridge[:, None] * users.vectors)
        penalty = float(ridge @ np.einsum("nd,nd->n", users.vectors, users.vectors))
        if users.biases is not None:
            penalty += float(ridge @ users.biases**2)
        known = users if users.biases is None else users._replace(biases=users.biases + items.mean)
        bound = settings.bound
        deviance = 0.0
        if bound is not None:
            entries = None if weigh is None and part.counts is None else part.weights(
                np.ones(part.shape[0]) if weigh is None else weigh
            )  # fmt: skip
            deviance = bound.deviance(
                part.users, part.actions, part.means, entries, known, items.factors
            )
        sums = part.by_action.equations(known, bound, items.factors, weigh)
        rated = (part.totals > 0).astype(np.float64)
        rated = rated if weigh is None else rated * weigh
        total = rated @ users.vectors
        return SweepSums(sums, deviance, gram, penalty, total, float(rated.sum()))


@dataclass(frozen=True, eq=False)
class FreedomPass:
    """The last pass, which sums the users' degrees of freedom for the noise estimate."""

    settings: Settings
    prepare: PrepareRatings
    threaded: bool = True

    def summarise(self, part: Ratings, items: Items) -> float:
        rows = part.by_user.with_ridge(self.settings.ridge(part.totals))
        freedom = rows.freedom(items.known)
        weigh = self.settings.weigh(part.keys)
        return float(freedom.sum() if weigh is None else weigh @ freedom)


@dataclass(frozen=True, eq=False)
class Folded:
    """A completion without its users' vectors, which are computed from `start`."""

    engine: Engine
    prepare: PrepareRatings
    settings: Settings
    start: Items  # the users are solved for given these
    items: Items  # solved for given those users
    centre: FloatArray  # (rank,): the mean vector of users with ratings
    action_counts: IntArray  # (n_actions,)
    noise: float
    history: tuple[Sweep, ...]
    uncertain: Uncertain | None = None  # set by a variational factorisation
    bounds: tuple[float, ...] = ()  # lower bounds on its log evidence, one per pass

    @cached_property
    def vectors(self) -> Any:
        """The callable that computes users' vectors (`user_vectors.PrepareVectors`)."""
        from latentbandits.learning.linear.clusters import PrepareVectors, metric_root

        root = metric_root(self.items.vectors, self.action_counts.astype(np.float64))
        return PrepareVectors(
            self.prepare, self.settings, self.start, self.centre, root, self.uncertain
        )

    @property
    def features(self) -> FloatArray:
        """The features of each action, as in `Completion`; with biases (v, 1, popularity)."""
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

    It stops earlier if the relative decrease of the objective falls below `tolerance`.
    """
    prepare = PrepareRatings()
    totals = engine.fold(TotalsPass(settings, prepare), None)
    total = float(totals.counts.sum())
    mean = level_of(totals.rewards / total, settings.link) if settings.biases else 0.0
    ridge = settings.action_ridge(totals.counts)
    empty = totals.counts == 0
    current = first_items(engine.n_actions, settings, mean) if start is None else start
    history: list[Sweep] = []
    while True:
        sums = engine.fold(SweepPass(settings, prepare), current)
        z, squares = sums.items.solve(ridge)
        items = _items(z, settings, mean)
        if settings.link == "identity":
            squares += totals.scatter
            penalty = float(np.einsum("nd,nd,nd->", ridge, z, z))
        else:
            squares = sums.deviance
            factors = joined(current.factors)
            penalty = float(np.einsum("nd,nd,nd->", ridge, factors, factors))
        objective = squares + penalty + sums.penalty
        rmse = math.sqrt(max(squares, 0.0) / total)
        history.append(Sweep(len(history) + 1, rmse, objective))
        fallen = math.inf if len(history) == 1 else history[-2].objective - objective
        if len(history) >= sweeps or fallen < tolerance * objective:
            break
        current = items
        if settings.link == "identity":
            current = items._replace(vectors=balanced(sums.user_gram, items.vectors, ridge[:, 0]))
    left = 1.0
    if settings.link == "identity":
        # The fits of both sides absorb part of the noise; about this fraction is left.
        left -= engine.fold(FreedomPass(settings, prepare), items) / total
        left *= 1 - float(sums.items.freedom(ridge[:, 0])[~empty].sum()) / total
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


def users_of(part: Ratings, items: Items, settings: Settings) -> Factors:
    """Solve for the users of a partition given the actions."""
    rows = part.by_user.with_ridge(settings.ridge(part.totals))
    bound = settings.bound
    if bound is None:
        return rows.solve(items.known).factors
    # Each step bounds the likelihood at the previous log-odds (`logistic_bound`), from zero.
    n = part.shape[0]
    users = Factors(np.zeros((n, settings.rank)), np.zeros(n) if settings.biases else None)
    for _ in range(_BOUNDS):
        users = rows.solve(items.known, likelihood=bound, current=users).factors
    return users


def first_items(n_actions: int, settings: Settings, mean: float) -> Items:
    """Return the random initial vectors of a completion."""
    rng = np.random.default_rng(settings.seed)
    random = rng.standard_normal((n_actions, settings.rank)) / math.sqrt(settings.rank)
    return Items(random, np.zeros(n_actions) if settings.biases else None, mean)


def _items(z: FloatArray, settings: Settings, mean: float) -> Items:
    if not settings.biases:
        return Items(z, None, mean)
    return Items(z[:, :-1], z[:, -1], mean)
