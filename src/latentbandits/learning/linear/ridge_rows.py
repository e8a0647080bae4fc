"""One side of a matrix completion: a ridge regression for every row, many rows in one product.

Rows with about equally many ratings lie together in a block, padded to the longest of them with
entries of a zero vector. The Gram matrices of a block are then one batched product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray

Weighting = Literal["plain", "counts"]

Blocks: TypeAlias = "tuple[_Block, ...]"
Each: TypeAlias = Callable[[Callable[[Blocks], Any], Iterable[Blocks]], Iterable[Any]]
"""Maps a function over groups of blocks, in order: `map`, or that of a pool of threads."""

_BLOCK_ENTRIES = 2**15  # smaller ones keep threads waiting for each other, larger ones the cache
_BLOCKS_PER_TASK = 4  # of about a millisecond each: worth a thread's while


class Factors(NamedTuple):
    """One side of the factorisation: rating - mean = u.bias + a.bias + u.vectors'a.vectors."""

    vectors: FloatArray  # (n_rows, rank)
    biases: FloatArray | None  # (n_rows,)


class Fit(NamedTuple):
    factors: Factors
    squares: float  # sum over ratings of the squared residual
    penalty: float  # reg times the weighted squares of these factors


class Weighted(NamedTuple):
    """A weighted least squares problem for every entry, `(n, length)` each."""

    targets: FloatArray
    weights: FloatArray


class _Block(NamedTuple):
    rows: IntArray  # (n,)
    columns: IntArray  # (n, length): of their ratings; beyond them the zero vector's
    ratings: FloatArray  # (n, length): less their mean; beyond them zero
    squares: float  # weighted sum of all squared ratings
    weights: FloatArray | None  # (n, length): beyond the ratings zero; None: one each


class _Equations(NamedTuple):
    """(X'WX + ridge I) z = X'Wy for the rows of a block, W the weights of its entries."""

    rows: IntArray
    ridged: FloatArray  # (n, d, d): X'WX + ridge I
    target: FloatArray  # (n, d): X'Wy
    squares: float  # y'Wy


Likelihood: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], Weighted]
"""The least squares problem that bounds a likelihood at the current predictions: from ratings,
weights (zero beyond the ratings) and predictions, `(n, length)` each."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The ratings of each row of the matrix: of its users, or of its actions."""

    tasks: tuple[Blocks, ...]
    counts: IntArray  # (n_rows,): how many ratings each has
    ridge: FloatArray  # (n_rows,): reg times the weight of each

    @classmethod
    def of(
        cls,
        rows: IntArray,
        columns: IntArray,
        ratings: FloatArray,
        shape: tuple[int, int],
        reg: float,
        weighting: Weighting,
        weights: FloatArray | None = None,
    ) -> Rows:
        counts = np.bincount(rows, minlength=shape[0])
        total = counts if weights is None else np.bincount(rows, weights, minlength=shape[0])
        penalties = np.ones(shape[0]) if weighting == "plain" else total.astype(np.float64)
        order = _by_row(rows, shape[0])
        own = None if weights is None else weights[order]
        blocks = tuple(_pad(counts, columns[order], ratings[order], own, shape[1]))
        starts = range(0, len(blocks), _BLOCKS_PER_TASK)
        tasks = tuple(blocks[start : start + _BLOCKS_PER_TASK] for start in starts)
        return cls(tasks, total.round().astype(np.int64), reg * penalties)

    def solve(
        self,
        others: Factors,
        each: Each = map,
        likelihood: Likelihood | None = None,
        current: Factors | None = None,
    ) -> Fit:
        """The factors of these rows that minimise the objective, given the other side's.

        At the minimum z of (y - X z)'W(y - X z) + ridge |z|^2 the residual squares are
        y'Wy - z'X'Wy - ridge |z|^2, so the ratings need not be visited again. A row without
        ratings has its penalty's minimum, zero. With a `likelihood`, targets and weights follow
        from the predictions of the `current` factors of these rows.
        """
        z = np.zeros((len(self.ridge), others.vectors.shape[1] + (others.biases is not None)))

        def work(equations: _Equations) -> float:
            block = np.linalg.solve(equations.ridged, equations.target[..., None])[..., 0]
            z[equations.rows] = block
            return equations.squares - float(np.einsum("nd,nd->", block, equations.target))

        squares = sum(self._map(others, work, each, likelihood, current))
        penalty = float(self.ridge @ np.einsum("nd,nd->n", z, z))
        factors = Factors(z, None) if others.biases is None else Factors(z[:, :-1], z[:, -1])
        return Fit(factors, squares - penalty, penalty)

    def degrees_of_freedom(self, others: Factors, each: Each = map) -> float:
        """The trace of the hat matrices of all rows: how much of the noise they have fitted.

        That of a row is the trace of (X'WX + ridge I)^-1 X'WX = I - ridge (X'WX + ridge I)^-1.
        """

        def work(equations: _Equations) -> float:
            traces = np.trace(np.linalg.inv(equations.ridged), axis1=1, axis2=2)
            return equations.target.size - float(self.ridge[equations.rows] @ traces)

        return sum(self._map(others, work, each))

    def _map(
        self,
        others: Factors,
        work: Callable[[_Equations], float],
        each: Each,
        likelihood: Likelihood | None = None,
        current: Factors | None = None,
    ) -> Iterable[float]:
        """`work` on the equations of every block, summed by task."""
        n, rank = others.vectors.shape
        features = np.zeros((n + 1, rank + (others.biases is not None)))  # the last: zero vector
        features[:n, :rank] = others.vectors
        offsets = None
        if others.biases is not None:
            features[:n, rank] = 1.0  # the intercept: these rows' own biases
            offsets = np.append(others.biases, 0.0)
        own = None if current is None else _joined(current)

        def equations(block: _Block) -> _Equations:
            x = features.take(block.columns, axis=0)
            y, squares, weights = block.ratings, block.squares, block.weights
            if likelihood is not None:
                assert own is not None
                assert weights is not None
                predicted = (x @ own[block.rows][:, :, None])[:, :, 0]
                if offsets is not None:
                    predicted += offsets.take(block.columns)
                y, weights = likelihood(y, weights, predicted)
            if offsets is not None:
                y = y - offsets.take(block.columns)
            if weights is None:
                if offsets is not None:
                    squares = float(np.einsum("nl,nl->", y, y))
                weighed = x
            else:
                if offsets is not None or likelihood is not None:
                    squares = float(np.einsum("nl,nl,nl->", weights, y, y))
                weighed = x * weights[..., None]
            ridged = weighed.transpose(0, 2, 1) @ x
            np.einsum("nii->ni", ridged)[...] += self.ridge[block.rows, None]
            target = (y[:, None, :] @ weighed)[:, 0]
            return _Equations(block.rows, ridged, target, squares)

        return each(lambda task: sum(work(equations(block)) for block in task), self.tasks)


def _by_row(rows: IntArray, n_rows: int) -> IntArray:
    """The positions of each row's ratings, row after row: a stable sort by counting, as scipy
    transposes a matrix with one entry per rating. Much faster than `argsort`.
    """
    from scipy.sparse import csr_array

    one_each = np.ones(len(rows), np.int8), rows, np.arange(len(rows) + 1)
    order = csr_array(one_each, shape=(len(rows), n_rows)).tocsc().indices
    return order.astype(np.int64)


def _joined(factors: Factors) -> FloatArray:
    """Vectors and, behind them, biases: the order of the features of the other side."""
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
    """Blocks of ratings that are sorted by row: the rows with most of them first."""
    starts = np.cumsum(counts) - counts
    by_count = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    first = 0
    while first < len(by_count):
        length = int(counts[by_count[first]])
        rows = by_count[first : first + max(1, _BLOCK_ENTRIES // length)]
        entry = np.arange(length)
        where = starts[rows, None] + entry  # past the end for some: clipped, and then emptied
        own, rated = columns.take(where, mode="clip"), ratings.take(where, mode="clip")
        weighed = None if weights is None else weights.take(where, mode="clip")
        if counts[rows[-1]] < length:
            beyond = entry >= counts[rows, None]
            own[beyond] = zero
            rated[beyond] = 0.0
            if weighed is not None:
                weighed[beyond] = 0.0
        factor = rated if weighed is None else rated * weighed
        yield _Block(rows, own, rated, float(np.einsum("nl,nl->", factor, rated)), weighed)
        first += len(rows)
