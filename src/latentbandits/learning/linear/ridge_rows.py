"""One side of a matrix completion: a ridge regression for every row, batched over rows.

Rows with similar numbers of ratings form a block, padded to the longest of them with entries of a
zero vector. The Gram matrices of a block are then one batched product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray

Blocks: TypeAlias = "tuple[_Block, ...]"
MapTasks: TypeAlias = Callable[[Callable[[Blocks], Any], Iterable[Blocks]], Iterable[Any]]
"""A function that maps over groups of blocks in order: `map`, or the map of a thread pool."""

_BLOCK_ENTRIES = 2**15  # smaller blocks cost calls, larger ones padding and the cache
_BLOCKS_PER_TASK = 4  # tasks of a few milliseconds, long enough for a thread
_LARGEST_COUNT = 8  # largest whole weight for which scaled features are kept in a table
_DEVIANCE_ENTRIES = 2**18  # entries whose deviance is summed at once


class Factors(NamedTuple):
    """One side of the factorisation: rating - mean = u.bias + a.bias + u.vectors'a.vectors."""

    vectors: FloatArray  # (n_rows, rank)
    biases: FloatArray | None  # (n_rows,)


class Weighted(NamedTuple):
    """A weighted least squares problem for every entry; arrays are `(n, length)`."""

    targets: FloatArray
    weights: FloatArray


class _Block(NamedTuple):
    rows: IntArray  # (n,)
    columns: IntArray  # (n, length): columns of the ratings; padded with the zero vector's
    ratings: FloatArray  # (n, length): ratings minus their mean; padded with zeros
    squares: float  # weighted sum of all squared ratings
    weights: FloatArray | None  # (n, length): padded with zeros; None means one each
    scaled: IntArray | None  # (n, length): places in the table of scaled features, if there is one


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


Likelihood: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], Weighted]
"""A function that returns the least squares problem that bounds a likelihood at the predictions.
Its arguments are ratings, weights (zero in the padding) and predictions, `(n, length)` each.
"""


@dataclass(frozen=True, eq=False)
class Rows:
    """The ratings of each row of the matrix; rows are users or actions."""

    tasks: tuple[Blocks, ...]
    n_rows: int
    largest_count: int = 0  # largest weight, if weights are small counts of rewards; else 0

    @classmethod
    def from_entries(
        cls,
        rows: IntArray,
        columns: IntArray,
        ratings: FloatArray,
        shape: tuple[int, int],
        weights: FloatArray | None = None,
    ) -> Rows:
        counts = np.bincount(rows, minlength=shape[0])
        if (rows[1:] < rows[:-1]).any():
            order = _by_row(rows, shape[0])
            columns, ratings = columns[order], ratings[order]
            weights = None if weights is None else weights[order]
        largest = 0 if weights is None else _largest_count(weights)
        blocks = tuple(_pad(counts, columns, ratings, weights, shape[1], largest > 0))
        starts = range(0, len(blocks), _BLOCKS_PER_TASK)
        tasks = tuple(blocks[start : start + _BLOCKS_PER_TASK] for start in starts)
        return cls(tasks, shape[0], largest)

    def solve(
        self,
        others: Factors,
        ridge: FloatArray,
        each: MapTasks = map,
        likelihood: Likelihood | None = None,
        current: Factors | None = None,
    ) -> Factors:
        """Return the factors of these rows that minimise the objective, given the other side.

        `ridge` are the penalties of the rows, `(n_rows,)`. A row without ratings has a zero vector.
        With a `likelihood`, targets and weights are computed from the predictions of the `current`
        factors of these rows.
        """
        z = np.zeros((self.n_rows, _width(others)))

        def work(equations: _Equations) -> float:
            penalties = ridge[equations.rows, None]
            z[equations.rows] = minimum(equations.gram, equations.target, penalties)
            return 0.0

        sum(self._map(others, work, each, likelihood, current))
        return Factors(z, None) if others.biases is None else Factors(z[:, :-1], z[:, -1])

    def freedom(self, others: Factors, ridge: FloatArray, each: MapTasks = map) -> FloatArray:
        """Return the degrees of freedom of every row `(n_rows,)`; zero without ratings."""
        freedom = np.zeros(self.n_rows)

        def work(equations: _Equations) -> float:
            freedom[equations.rows] = degrees_of_freedom(equations.gram, ridge[equations.rows])
            return 0.0

        sum(self._map(others, work, each))
        return freedom

    def equations(
        self,
        others: Factors,
        each: MapTasks = map,
        likelihood: Likelihood | None = None,
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

        squares = sum(self._map(others, work, each, likelihood, current, column_weights))
        return Equations(products, targets, squares)

    def _map(
        self,
        others: Factors,
        work: Callable[[_Equations], float],
        each: MapTasks,
        likelihood: Likelihood | None = None,
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
        by_count = None  # features times the root of each count: gathered, not multiplied
        if self.largest_count > 0 and likelihood is None and often is None:
            roots = np.sqrt(np.arange(self.largest_count + 1.0))
            by_count = (roots[:, None, None] * features).reshape(-1, features.shape[1])

        def equations(block: _Block) -> _Equations:
            if by_count is None or block.scaled is None:
                x = features.take(block.columns, axis=0)
            else:
                x = by_count.take(block.scaled, axis=0)
            y, squares, weights = block.ratings, block.squares, block.weights
            if often is not None:
                counted = often.take(block.columns)
                weights = counted if weights is None else counted * weights
            if likelihood is not None:
                assert factors is not None
                if weights is None:
                    weights = (block.columns < n).astype(np.float64)
                predicted = (x @ factors[block.rows][:, :, None])[:, :, 0]
                if offsets is not None:
                    predicted += offsets.take(block.columns)
                y, weights = likelihood(y, weights, predicted)
            if offsets is not None:
                y = y - offsets.take(block.columns)
            if weights is not None:  # x and y times W^1/2; in place, as new pages are slow
                root = np.sqrt(weights)
                if by_count is None:
                    x *= root.repeat(x.shape[2]).reshape(x.shape)  # quicker than broadcasting
                y = y * root
            if offsets is not None or likelihood is not None or often is not None:
                squares = float(np.einsum("nl,nl->", y, y))
            gram = x.transpose(0, 2, 1) @ x
            target = (y[:, None, :] @ x)[:, 0]
            return _Equations(block.rows, gram, target, squares)

        return each(lambda task: sum(work(equations(block)) for block in task), self.tasks)


def minimum(gram: FloatArray, target: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return (X'WX + diag ridge)^-1 X'Wy of every row, `(n, d)`; `gram` is overwritten.

    `ridge` is `(n, d)`, or `(n, 1)` if all coefficients of a row have the same penalty.
    """
    np.einsum("nii->ni", gram)[...] += ridge
    return np.linalg.solve(gram, target[..., None])[..., 0].astype(np.float64, copy=False)


def degrees_of_freedom(gram: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return the trace of every row's hat matrix, its degrees of freedom, `(n,)`.

    The trace is that of (X'WX + ridge I)^-1 X'WX = I - ridge (X'WX + ridge I)^-1; `gram` is
    overwritten.
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


def _largest_count(weights: FloatArray) -> int:
    """Return the largest weight if all are small whole numbers, else 0.

    >>> _largest_count(np.array([1.0, 3.0])), _largest_count(np.array([0.5])), _largest_count(
    ...     np.array([1.0, 100.0])
    ... )
    (3, 0, 0)
    """
    largest = float(weights.max(initial=0.0))
    small = largest <= _LARGEST_COUNT and bool((weights == np.rint(weights)).all())
    return int(largest) if small else 0


def _pad(
    counts: IntArray,
    columns: IntArray,
    ratings: FloatArray,
    weights: FloatArray | None,
    zero: int,
    counted: bool,
) -> Iterator[_Block]:
    """Yield blocks of ratings sorted by row; rows with the most ratings come first.

    Args:
        counts: number of ratings of each row.
        columns: columns of the ratings.
        ratings: the ratings.
        weights: their weights; None means one each.
        zero: column of the zero vector.
        counted: whether the weights are small counts, for which features are scaled in a table.
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
        scaled = None
        if counted and weighed is not None:
            scaled = column + (zero + 1) * weighed.astype(np.int64)
        squares = float(np.einsum("nl,nl->", factor, rated))
        yield _Block(rows, column, rated, squares, weighed, scaled)
        first += len(rows)


# Clicks: the quadratic bound of Jaakkola & Jordan (2000) on a logistic log likelihood.
#
# For c ones in n trials with log-odds z, and any xi,
#
#     c z - n log(1 + e^z) >= (c - n/2) z - n lambda(xi) z^2 + constant,
#
# with lambda(xi) = tanh(xi/2) / (4 xi) and equality at z = xi and z = -xi. The right side is a
# weighted square with weight 2 n lambda(xi) and target (c - n/2) / (2 n lambda(xi)).


def logistic_bound(rates: FloatArray, trials: FloatArray, predicted: FloatArray) -> Weighted:
    """Return the least squares problem that bounds clicks' likelihood at `predicted` log-odds."""
    slope = half_slope(np.abs(predicted))
    return Weighted((rates - 0.5) / (2 * slope), 2 * trials * slope)


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
