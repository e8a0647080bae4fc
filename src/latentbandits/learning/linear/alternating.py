"""Alternating least squares: one loop for a log in memory, on disk or on Spark.

The objective is

    sum over entries of n (r - mean - b_u - c_a - u'v)^2
        + reg (sum_u w_u (|u|^2 + b_u^2) + sum_a w_a (|v|^2 + c_a^2)),

with n the number of rewards of an entry, and weights w equal to one ("plain") or to the number of
rewards of the row ("counts"). mean, b and c are zero without biases. Between sweeps the two sides
are balanced. Clicks (`link="logit"`) have the same form, with -2 log likelihood of a logistic model
instead of the squares; with the bound of Jaakkola & Jordan (2000) every half sweep is a weighted
least squares problem.

A sweep solves for the users of every partition given the vectors of the actions, and returns the
actions' normal equations. Users' vectors are not stored on disk or on Spark: they are functions of
the actions' vectors, and are computed again when they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from latentbandits.learning import user_hash
from latentbandits.learning.backends.backend import LogEngine
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.user_hash import Keys
from latentbandits.models.checks import FloatArray, IntArray, positive_count, positive_number

if TYPE_CHECKING:
    from latentbandits.learning.linear.variational import Uncertain

Link = Literal["identity", "logit"]
Weighting = Literal["plain", "counts"]

_BOUNDS = 8  # iterations of the logistic bound for a user's clicks, from zero


@dataclass(frozen=True)
class CompletionSettings:
    """Settings of a matrix completion.

    Args:
        rank: rank of the factorisation.
        reg: factor of the penalty.
        weighting: weights w of the penalty: "plain" is one, "counts" the number of rewards of a
            row.
        biases: whether every row and column has a level (bias).
        link: "identity", or "logit" for clicks.
        seed: seed of the first vectors, and of a bootstrap.
        sweeps: largest number of passes.
        tolerance: relative decrease of the objective below which passes end.
        popularity_reg: penalty of the actions' biases; None: the penalty of their vectors.
        replicate: number of the bootstrap replicate whose weights users have; None: one each.
    """

    rank: int
    reg: float = 1.0
    weighting: Weighting = "plain"
    biases: bool = False
    link: Link = "identity"
    seed: int = 0
    sweeps: int = 20
    tolerance: float = 0.0
    popularity_reg: float | None = None
    replicate: int | None = None

    def __post_init__(self) -> None:
        positive_count("rank", self.rank)
        positive_count("sweeps", self.sweeps)
        positive_number("reg", self.reg)
        if self.weighting not in ("plain", "counts"):
            raise ValueError(f"weighting must be 'plain' or 'counts'; got {self.weighting!r}")
        if self.link not in ("identity", "logit"):
            raise ValueError(f"link must be 'identity' or 'logit'; got {self.link!r}")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance must be a number of at least zero; got {self.tolerance}")

    def weigh(self, keys: Keys) -> FloatArray | None:
        """Return the bootstrap weight of each user, or None without a bootstrap."""
        if self.replicate is None:
            return None
        return user_hash.bootstrap_weights(keys, self.replicate + 1, self.seed)[:, -1]

    def ridge(self, totals: FloatArray) -> FloatArray:
        """Return the penalties of rows with `totals` rewards; without rewards a vector is zero."""
        return self.reg * (np.ones(len(totals)) if self.weighting == "plain" else totals)

    def action_ridge(self, totals: FloatArray) -> FloatArray:
        """Return the penalties of every coefficient of the actions, `(n_actions, d)`."""
        ridge = np.where(totals == 0, 1.0, self.ridge(totals))  # without rewards, z is zero
        of_coefficients = np.repeat(ridge[:, None], self.rank + self.biases, axis=1)
        if self.biases and self.popularity_reg is not None:
            of_coefficients[:, -1] = self.popularity_reg
        return of_coefficients


class Sweep(NamedTuple):
    """The objective and the error after one pass over both sides; with clicks, over the users."""

    number: int
    rmse: float  # for clicks, the root of the mean deviance
    objective: float


class Factors(NamedTuple):
    """One side of the factorisation: rating = mean + u.bias + a.bias + u.vectors'a.vectors."""

    vectors: FloatArray  # (n_rows, rank)
    biases: FloatArray | None  # (n_rows,)
    mean: float = 0.0  # kept with the actions

    @classmethod
    def of_columns(cls, z: FloatArray, biases: bool, mean: float = 0.0) -> Factors:
        """Return the factors whose columns `joined` returns."""
        return cls(z[:, :-1], z[:, -1], mean) if biases else cls(z, None, mean)

    @property
    def known(self) -> Factors:
        """The same side when the other one is solved for; its biases include the mean."""
        return self if self.biases is None else Factors(self.vectors, self.biases + self.mean)


# The rewards of a log summed by pair of user and action; repeated pairs get larger weights.


@dataclass(frozen=True, eq=False)
class Ratings:
    """The distinct pairs of user and action of a partition, sorted by user and then by action."""

    users: IntArray  # (n,)
    actions: IntArray  # (n,)
    means: FloatArray  # (n,): mean reward of the pair
    counts: FloatArray | None  # (n,): number of rewards of the pair; None means one each
    scatter: float  # sum over all rewards of their squared distance from their pair's mean
    shape: tuple[int, int]
    keys: Keys
    each: MapTasks = map  # how tasks of the rows are mapped; a pool's `map` has threads

    @cached_property
    def by_user(self) -> Rows:
        entries = self.users, self.actions, self.means
        return Rows.from_entries(*entries, self.shape, self.counts, self.each)

    @cached_property
    def by_action(self) -> Rows:
        entries = self.actions, self.users, self.means
        return Rows.from_entries(*entries, self.shape[::-1], self.counts, self.each)

    @cached_property
    def totals(self) -> FloatArray:
        """Number of rewards of every user, `(n_users,)`."""
        return np.bincount(self.users, self.counts, minlength=self.shape[0]).astype(np.float64)

    def weights(self, weigh: FloatArray | None) -> FloatArray:
        """Return the weight of each entry `(n,)`; `weigh` are weights of users, None one each."""
        if weigh is None:
            return np.ones(len(self.users)) if self.counts is None else self.counts
        user_weights: FloatArray = weigh[self.users]
        return user_weights if self.counts is None else user_weights * self.counts

    def rated(self, weigh: FloatArray | None) -> FloatArray:
        """Return the weight of each user, zero without rewards, `(n_users,)`."""
        rated = (self.totals > 0).astype(np.float64)
        return rated if weigh is None else rated * weigh


def sum_pairs(log: Log) -> Ratings:
    """Sum the rewards of every pair that occurs in `log`.

    >>> from latentbandits.learning.logs.rows import read_log
    >>> log = read_log({"u": [1, 1, 2], "a": ["x", "x", "y"], "r": [1, 3, 5]}, "u", "a", "r")
    >>> pairs = sum_pairs(log)
    >>> pairs.means, pairs.counts, pairs.scatter
    (array([2., 5.]), array([2., 1.]), 2.0)
    """
    shape = (log.n_users, log.n_actions)
    # Users are sorted already, so that a stable sort only merges the rows of each user.
    order = np.argsort(log.users * log.n_actions + log.actions, kind="stable")
    users, actions = log.users[order], log.actions[order]
    first = np.ones(log.n_events, np.bool_)  # the first row of each pair
    first[1:] = (users[1:] != users[:-1]) | (actions[1:] != actions[:-1])
    if first.all():
        means = np.asarray(log.rewards)
        return Ratings(log.users, log.actions, means, None, 0.0, shape, log.keys)
    which = np.empty(log.n_events, np.int64)  # the pair of each row
    which[order] = np.cumsum(first) - 1
    counts = np.bincount(which).astype(np.float64)
    means = np.bincount(which, log.rewards) / counts
    scatter = float(np.sum((log.rewards - means[which]) ** 2))
    return Ratings(users[first], actions[first], means, counts, scatter, shape, log.keys)


# The passes over partitions.


class RatingTotals(NamedTuple):
    """The sums of the first pass."""

    counts: FloatArray  # (n_actions,): number of rewards
    rewards: float
    squares: float  # sum of the squared means of pairs, weighted by their counts
    scatter: float  # sum of squared distances of rewards from their pair's mean


class SweepSums(NamedTuple):
    """The sums of a pass."""

    items: Equations
    deviance: float  # for clicks
    user_gram: FloatArray  # (rank, rank): Gram matrix of users' vectors, weighted by their ridges
    penalty: float
    vectors: FloatArray  # (rank,): sum over users with ratings
    n_users: float  # number of users with ratings


@dataclass(frozen=True, eq=False)
class RatingPass:
    """A pass over the ratings of every partition, which an engine keeps."""

    settings: CompletionSettings
    prepare = staticmethod(sum_pairs)


class RatingTotalsPass(RatingPass):
    """The first pass of a completion."""

    def summarise(self, part: Ratings, parameters: None) -> RatingTotals:
        weights = part.weights(self.settings.weigh(part.keys))
        return RatingTotals(
            np.bincount(part.actions, weights, minlength=part.shape[1]).astype(np.float64),
            float(weights @ part.means),
            float(weights @ part.means**2),
            part.scatter,
        )


class SweepPass(RatingPass):
    """A pass that solves for users given actions, and returns the equations of the actions."""

    threaded = True

    def solve_users(self, part: Ratings, items: Factors) -> Factors:
        """Return the users' vectors given the actions'."""
        return users_of(part, items, self.settings)

    def summarise(self, part: Ratings, items: Factors) -> SweepSums:
        settings = self.settings
        users = self.solve_users(part, items)
        weigh = settings.weigh(part.keys)
        ridge = settings.ridge(part.totals)
        ridge = ridge if weigh is None else ridge * weigh
        gram = users.vectors.T @ (ridge[:, None] * users.vectors)
        penalty = float(ridge @ np.einsum("nd,nd->n", users.vectors, users.vectors))
        if users.biases is not None:
            penalty += float(ridge @ users.biases**2)
        known = users._replace(mean=items.mean).known
        current, deviance = None, 0.0
        if settings.link == "logit":
            current = items
            entries = part.users, part.actions, part.means, part.weights(weigh)
            deviance = logistic_deviance(*entries, known, items)
        sums = part.by_action.equations(known, current, weigh)
        rated = part.rated(weigh)
        total = rated @ users.vectors
        return SweepSums(sums, deviance, gram, penalty, total, float(rated.sum()))


@dataclass(frozen=True, eq=False)
class KeptSweepPass(SweepPass):
    """A sweep over all users in memory, which keeps their vectors.

    With clicks, the bound of the next sweep is made at these vectors, so that one step of it is
    enough and the objective never rises.
    """

    kept: list[Factors] = field(default_factory=list)

    def solve_users(self, part: Ratings, items: Factors) -> Factors:
        before = self.kept.pop() if self.kept else no_users(part, self.settings)
        self.kept.append(users_of(part, items, self.settings, before, steps=1))
        return self.kept[0]


class FreedomPass(RatingPass):
    """The last pass, which sums the users' degrees of freedom for the noise estimate."""

    threaded = True

    def summarise(self, part: Ratings, items: Factors) -> float:
        ridge = self.settings.ridge(part.totals)
        freedom = part.by_user.freedom(items.known, ridge)
        weigh = self.settings.weigh(part.keys)
        return float(freedom.sum() if weigh is None else weigh @ freedom)


def users_of(
    part: Ratings,
    items: Factors,
    settings: CompletionSettings,
    current: Factors | None = None,
    steps: int = _BOUNDS,
) -> Factors:
    """Solve for the users of a partition given the actions.

    With clicks, each of the `steps` bounds the likelihood at the previous log-odds. The first are
    the log-odds of the `current` users, or zero.
    """
    ridge = settings.ridge(part.totals)
    if settings.link == "identity":
        return part.by_user.solve(items.known, ridge)
    users = no_users(part, settings) if current is None else current
    for _ in range(steps):
        users = part.by_user.solve(items.known, ridge, users)
    return users


def no_users(part: Ratings, settings: CompletionSettings) -> Factors:
    """Return zero vectors of the users."""
    n = part.shape[0]
    return Factors(np.zeros((n, settings.rank)), np.zeros(n) if settings.biases else None)


# The loop.


class Alternated(NamedTuple):
    """The result of alternating least squares."""

    start: Factors  # the users are solved for given these
    items: Factors  # solved for given those users
    centre: FloatArray  # (rank,): the mean vector of users with ratings
    action_counts: IntArray  # (n_actions,)
    noise: float
    history: tuple[Sweep, ...]


def alternate(
    fold: Callable[[Any, Any], Any],
    sweep: SweepPass,
    start: Factors | None = None,
    callback: Callable[[Sweep], None] | None = None,
) -> Alternated:
    """Solve for users and actions in turns, until the objective falls by less than the tolerance.

    Args:
        fold: the sum of a pass over all partitions, given the pass and its parameters.
        sweep: the pass over the users of a partition, with the settings.
        start: first vectors of the actions; None: random ones.
        callback: called after each sweep.
    """
    settings = sweep.settings
    squared = settings.link == "identity"
    totals = fold(RatingTotalsPass(settings), None)
    total = float(totals.counts.sum())
    mean = level_of(totals.rewards / total, settings.link) if settings.biases else 0.0
    ridge = settings.action_ridge(totals.counts)
    current = first_items(len(totals.counts), settings, mean) if start is None else start
    history: list[Sweep] = []
    while True:
        sums = fold(sweep, current)
        z, squares = sums.items.solve(ridge)
        items = Factors.of_columns(z, settings.biases, mean)
        squares = squares + totals.scatter if squared else sums.deviance
        penalised = z if squared else joined(current)  # the deviance is that of `current`
        penalty = float(np.einsum("nd,nd,nd->", ridge, penalised, penalised))
        objective = squares + penalty + sums.penalty
        rmse = math.sqrt(max(squares, 0.0) / total)
        history.append(Sweep(len(history) + 1, rmse, objective))
        if callback is not None:
            callback(history[-1])
        fallen = math.inf if len(history) == 1 else history[-2].objective - objective
        if len(history) >= settings.sweeps or fallen < settings.tolerance * objective:
            break
        current = items
        if squared:
            current = items._replace(vectors=balanced(sums.user_gram, items.vectors, ridge[:, 0]))
    left = 1.0
    if squared:
        # The fits of both sides absorb part of the noise; about this fraction is left.
        left -= fold(FreedomPass(settings), items) / total
        freedom = sums.items.freedom(ridge[:, 0])
        left *= 1 - float(freedom[totals.counts > 0].sum()) / total
    return Alternated(
        current,
        items,
        sums.vectors / sums.n_users,
        totals.counts.round().astype(np.int64),
        history[-1].rmse / math.sqrt(left),
        tuple(history),
    )


def level_of(mean: float, link: Link) -> float:
    """Return the constant of a completion with biases: the mean, or its log-odds."""
    if link == "identity":
        return mean
    inside = min(max(mean, 1e-6), 1 - 1e-6)
    return math.log(inside / (1 - inside))


def first_items(n_actions: int, settings: CompletionSettings, mean: float) -> Factors:
    """Return the random initial vectors of a completion."""
    rng = np.random.default_rng(settings.seed)
    random = rng.standard_normal((n_actions, settings.rank)) / math.sqrt(settings.rank)
    return Factors(random, np.zeros(n_actions) if settings.biases else None, mean)


def balanced(user_gram: FloatArray, actions: FloatArray, action_ridge: FloatArray) -> FloatArray:
    """Return the actions' vectors of the factorisation with the same products and least penalty.

    `user_gram` is users'R users, with R the ridges. Over all transforms T (users T^-1', actions T),
    the penalty is least if users'R users equals actions'R actions. With users'R users = C C', this
    holds if the vectors actions C are scaled along each principal axis to the square root of their
    length there. T is determined up to a rotation; the symmetric T is returned, which does not
    depend on the signs of the axes. Alternating least squares converge to the same point, but spend
    more than half of their sweeps on it.

    >>> balanced(np.array([[64.0]]), np.array([[2.0]]), np.ones(1))
    array([[4.]])
    """
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
    return vectors.T @ (weights[:, None] * vectors)


@dataclass(frozen=True, eq=False)
class Folded:
    """A completion without its users' vectors, which are computed from `start`."""

    engine: LogEngine
    settings: CompletionSettings
    start: Factors  # the users are solved for given these
    items: Factors  # solved for given those users
    centre: FloatArray  # (rank,): the mean vector of users with ratings
    action_counts: IntArray  # (n_actions,)
    noise: float
    history: tuple[Sweep, ...]
    uncertain: Uncertain | None = None  # set by a variational factorisation
    bounds: tuple[float, ...] = ()  # lower bounds on its log evidence, one per pass

    @property
    def link(self) -> Link:
        return self.settings.link

    @property
    def biases(self) -> bool:
        return self.settings.biases

    @cached_property
    def vectors(self) -> Any:
        """The callable that computes users' vectors (`clusters.PrepareVectors`)."""
        from latentbandits.learning.linear.clusters import PrepareVectors, metric_root

        root = metric_root(self.items.vectors, self.action_counts.astype(np.float64))
        return PrepareVectors(self.settings, self.start, self.centre, root, self.uncertain)

    @property
    def features(self) -> FloatArray:
        """The features of each action, as in `Completion`; with biases (v, 1, popularity)."""
        items = self.items
        if items.biases is None:
            return items.vectors
        popularity = items.biases + items.vectors @ self.centre
        return np.column_stack([items.vectors, np.ones(len(items.vectors)), popularity])


def complete_fold(
    engine: LogEngine, settings: CompletionSettings, start: Factors | None = None
) -> Folded:
    """Complete the matrix of a log on any engine: a pass for each sweep, and one before and after.

    `start` are first vectors of the actions; None: random ones.
    """
    return Folded(engine, settings, *alternate(engine.fold, SweepPass(settings), start))


# One side of a matrix completion: a ridge regression for every row, batched over rows.
#
# Rows with similar numbers of ratings form a block, padded to the longest of them with entries of a
# zero vector. The Gram matrices of a block are then one batched product.

Blocks: TypeAlias = "tuple[_Block, ...]"
MapTasks: TypeAlias = Callable[[Callable[[Blocks], Any], Iterable[Blocks]], Iterable[Any]]
"""A function that maps over groups of blocks in order: `map`, or the map of a thread pool."""

_BLOCK_ENTRIES = 2**15  # smaller blocks cost calls, larger ones padding and the cache
_BLOCKS_PER_TASK = 4  # tasks of a few milliseconds, long enough for a thread
_DEVIANCE_ENTRIES = 2**18  # entries whose deviance is summed at once


class _Block(NamedTuple):
    rows: IntArray  # (n,)
    columns: IntArray  # (n, length): columns of the ratings; padded with the zero vector's
    ratings: FloatArray  # (n, length): ratings minus their mean; padded with zeros
    squares: float  # weighted sum of all squared ratings
    weights: FloatArray | None  # (n, length): padded with zeros; None means one each


class _Equations(NamedTuple):
    """(X'WX + ridge I) z = X'Wy for the rows of a block, with W the weights of its entries."""

    rows: IntArray
    gram: FloatArray  # (n, d, d): X'WX
    target: FloatArray  # (n, d): X'Wy
    squares: float  # y'Wy


class Equations(NamedTuple):
    """The equations of all rows; equations of disjoint entries add."""

    products: FloatArray  # (n_rows, d (d + 1) / 2): X'WX on and above the diagonal
    targets: FloatArray  # (n_rows, d): X'Wy
    squares: float  # y'Wy, summed over all rows

    def gram(self) -> FloatArray:
        """Return X'WX of every row, `(n_rows, d, d)`."""
        n, d = self.targets.shape
        place = np.zeros((d, d), np.int64)
        place[np.triu_indices(d)] = np.arange(self.products.shape[1])
        both = np.maximum(place, place.T)
        return self.products.take(both.ravel(), axis=1).reshape(n, d, d)

    def solve(self, ridge: FloatArray) -> tuple[FloatArray, float]:
        """Return the minimiser of every row `(n_rows, d)`, and the sum of squared residuals.

        `ridge` is the penalty of every coefficient, `(n_rows, d)`. At the minimum z of
        (y - X z)'W(y - X z) + ridge |z|^2 the residual squares are y'Wy - z'X'Wy - ridge |z|^2, so
        the ratings are not read again.
        """
        z = minimum(self.gram(), self.targets, ridge)
        penalty = float(np.einsum("nd,nd,nd->", ridge, z, z))
        return z, self.squares - float(np.einsum("nd,nd->", z, self.targets)) - penalty

    def freedom(self, ridge: FloatArray) -> FloatArray:
        """Return the degrees of freedom of every row, `(n_rows,)`."""
        return degrees_of_freedom(self.gram(), ridge)


@dataclass(frozen=True, eq=False)
class Rows:
    """The ratings of each row of the matrix; rows are users or actions."""

    tasks: tuple[Blocks, ...]
    n_rows: int
    each: MapTasks  # how tasks are mapped

    @classmethod
    def from_entries(
        cls,
        rows: IntArray,
        columns: IntArray,
        ratings: FloatArray,
        shape: tuple[int, int],
        weights: FloatArray | None,
        each: MapTasks,
    ) -> Rows:
        counts = np.bincount(rows, minlength=shape[0])
        if (rows[1:] < rows[:-1]).any():
            order = _by_row(rows, shape[0])
            columns, ratings = columns[order], ratings[order]
            weights = None if weights is None else weights[order]
        blocks = tuple(_pad(counts, columns, ratings, weights, shape[1]))
        starts = range(0, len(blocks), _BLOCKS_PER_TASK)
        tasks = tuple(blocks[start : start + _BLOCKS_PER_TASK] for start in starts)
        return cls(tasks, shape[0], each)

    def solve(self, others: Factors, ridge: FloatArray, current: Factors | None = None) -> Factors:
        """Return the factors of these rows that minimise the objective, given the other side.

        `ridge` are the penalties of the rows, `(n_rows,)`. A row without ratings has a zero vector.
        For clicks, `current` are factors of these rows, at whose predictions the likelihood is
        bounded (`logistic_bound`).
        """
        z = np.zeros((self.n_rows, _width(others)))

        def work(equations: _Equations) -> float:
            penalties = ridge[equations.rows, None]
            z[equations.rows] = minimum(equations.gram, equations.target, penalties)
            return 0.0

        sum(self._map(others, work, current))
        return Factors.of_columns(z, others.biases is not None)

    def freedom(self, others: Factors, ridge: FloatArray) -> FloatArray:
        """Return the degrees of freedom of every row `(n_rows,)`; zero without ratings."""
        freedom = np.zeros(self.n_rows)

        def work(equations: _Equations) -> float:
            freedom[equations.rows] = degrees_of_freedom(equations.gram, ridge[equations.rows])
            return 0.0

        sum(self._map(others, work))
        return freedom

    def equations(
        self,
        others: Factors,
        current: Factors | None = None,
        column_weights: FloatArray | None = None,
    ) -> Equations:
        """Return the equations of `solve`, to be added over several parts of the ratings.

        `column_weights` (n_columns,) are the weights of the other side's rows.
        """
        d = _width(others)
        above = np.flatnonzero(np.triu(np.ones((d, d))))
        products = np.zeros((self.n_rows, len(above)))
        targets = np.zeros((self.n_rows, d))

        def work(equations: _Equations) -> float:
            n = len(equations.rows)
            products[equations.rows] = equations.gram.reshape(n, d * d).take(above, axis=1)
            targets[equations.rows] = equations.target
            return equations.squares

        squares = sum(self._map(others, work, current, column_weights))
        return Equations(products, targets, squares)

    def _map(
        self,
        others: Factors,
        work: Callable[[_Equations], float],
        current: Factors | None = None,
        column_weights: FloatArray | None = None,
    ) -> Iterable[float]:
        """Apply `work` to the equations of every block, and sum by task."""
        n, rank = others.vectors.shape
        features = np.zeros((n + 1, _width(others)))  # the last row is the zero vector
        features[:n, :rank] = others.vectors
        offsets = None
        if others.biases is not None:
            features[:n, rank] = 1.0  # the coefficient of this column is the row's bias
            offsets = np.append(others.biases, 0.0)
        factors = None if current is None else joined(current)
        often = None if column_weights is None else np.append(column_weights, 0.0)

        def equations(block: _Block) -> _Equations:
            x = features.take(block.columns, axis=0)
            y, squares, weights = block.ratings, block.squares, block.weights
            if often is not None:
                counted = often.take(block.columns)
                weights = counted if weights is None else counted * weights
            if factors is not None:
                if weights is None:
                    weights = (block.columns < n).astype(np.float64)
                predicted = (x @ factors[block.rows][:, :, None])[:, :, 0]
                if offsets is not None:
                    predicted += offsets.take(block.columns)
                y, weights = logistic_bound(y, weights, predicted)
            if offsets is not None:
                y = y - offsets.take(block.columns)
            if weights is not None:  # x and y times W^1/2; in place, as new pages are slow
                root = np.sqrt(weights)
                x *= root.repeat(x.shape[2]).reshape(x.shape)  # quicker than broadcasting
                y = y * root
            if offsets is not None or factors is not None or often is not None:
                squares = float(np.einsum("nl,nl->", y, y))
            gram = x.transpose(0, 2, 1) @ x
            target = (y[:, None, :] @ x)[:, 0]
            return _Equations(block.rows, gram, target, squares)

        return self.each(lambda task: sum(work(equations(block)) for block in task), self.tasks)


def minimum(gram: FloatArray, target: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return (X'WX + diag ridge)^-1 X'Wy of every row, `(n, d)`; `gram` is overwritten.

    `ridge` is `(n, d)`, or `(n, 1)` if all coefficients of a row have the same penalty.
    """
    np.einsum("nii->ni", gram)[...] += ridge
    return np.linalg.solve(gram, target[..., None])[..., 0].astype(np.float64, copy=False)


def degrees_of_freedom(gram: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return the trace of every row's hat matrix, its degrees of freedom, `(n,)`.

    The hat matrix has the trace of (X'WX + ridge I)^-1 X'WX = I - ridge (X'WX + ridge I)^-1; `gram`
    is overwritten.
    """
    np.einsum("nii->ni", gram)[...] += ridge[:, None]
    traces = np.trace(np.linalg.inv(gram), axis1=1, axis2=2)
    freedom: FloatArray = gram.shape[1] - ridge * traces
    return freedom


def _width(others: Factors) -> int:
    """Return the number of coefficients of a row: the rank, plus one with biases."""
    return int(others.vectors.shape[1]) + (others.biases is not None)


def _by_row(rows: IntArray, n_rows: int) -> IntArray:
    """Return the positions of the ratings sorted by row.

    This is a stable counting sort, done by transposing a sparse matrix with one entry per rating.
    It is much faster than `argsort`.
    """
    from scipy.sparse import csr_array

    one_each = np.ones(len(rows), np.int8), rows, np.arange(len(rows) + 1)
    order = csr_array(one_each, shape=(len(rows), n_rows)).tocsc().indices
    return order.astype(np.int64)


def joined(factors: Factors) -> FloatArray:
    """Return the vectors, then the biases as last column, in the order of the features."""
    if factors.biases is None:
        return factors.vectors
    return np.column_stack([factors.vectors, factors.biases])


def _pad(
    counts: IntArray,
    columns: IntArray,
    ratings: FloatArray,
    weights: FloatArray | None,
    zero: int,
) -> Iterator[_Block]:
    """Yield blocks of ratings sorted by row; rows with the most ratings come first.

    Args:
        counts: number of ratings of each row.
        columns: columns of the ratings.
        ratings: the ratings.
        weights: their weights; None means one each.
        zero: column of the zero vector.
    """
    starts = np.cumsum(counts) - counts
    by_count = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    first = 0
    while first < len(by_count):
        length = int(counts[by_count[first]])
        rows = by_count[first : first + max(1, _BLOCK_ENTRIES // length)]
        entry = np.arange(length)
        where = starts[rows, None] + entry  # positions past the end are clipped, and emptied below
        column, rated = columns.take(where, mode="clip"), ratings.take(where, mode="clip")
        weighed = None if weights is None else weights.take(where, mode="clip")
        if counts[rows[-1]] < length:
            beyond = entry >= counts[rows, None]
            column[beyond] = zero
            rated[beyond] = 0.0
            if weighed is not None:
                weighed[beyond] = 0.0
        factor = rated if weighed is None else rated * weighed
        squares = float(np.einsum("nl,nl->", factor, rated))
        yield _Block(rows, column, rated, squares, weighed)
        first += len(rows)


# Clicks: the quadratic bound of Jaakkola & Jordan (2000) on a logistic log likelihood.
#
# For c ones in n trials with log-odds z, and any xi,
#
#     c z - n log(1 + e^z) >= (c - n/2) z - n lambda(xi) z^2 + constant,
#
# with lambda(xi) = tanh(xi/2) / (4 xi) and equality at z = xi and z = -xi. The right side is a
# weighted square with weight 2 n lambda(xi) and target (c - n/2) / (2 n lambda(xi)).


def logistic_bound(
    rates: FloatArray, trials: FloatArray, predicted: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the least squares problem that bounds clicks' likelihood at `predicted` log-odds.

    It is the targets and the weights of all entries, `(n, length)` as the arguments.
    """
    slope = half_slope(np.abs(predicted))
    return (rates - 0.5) / (2 * slope), 2 * trials * slope


def logistic_deviance(
    users: IntArray,
    actions: IntArray,
    rates: FloatArray,
    trials: FloatArray,
    user_side: Factors,
    action_side: Factors,
) -> float:
    """Return -2 log likelihood of the clicks of all entries."""
    total = 0.0
    for start in range(0, len(rates), _DEVIANCE_ENTRIES):
        block = slice(start, start + _DEVIANCE_ENTRIES)
        u, a = users[block], actions[block]
        z = np.einsum("nd,nd->n", user_side.vectors[u], action_side.vectors[a])
        if user_side.biases is not None and action_side.biases is not None:
            z += user_side.biases[u] + action_side.biases[a]
        total += float(trials[block] @ (np.logaddexp(0.0, z) - rates[block] * z))
    return 2 * total


def half_slope(xi: FloatArray) -> FloatArray:
    """Return lambda(xi) = tanh(xi / 2) / (4 xi), which is 1/8 at zero.

    >>> half_slope(np.array([0.0, 2.0])).round(4)
    array([0.125 , 0.0952])
    """
    small = xi < 1e-4
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125, np.tanh(safe / 2) / (4 * safe))
