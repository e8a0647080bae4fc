"""One side of a matrix completion: a ridge regression for every row, all in a few products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from latentbandits.models.checks import FloatArray, IntArray

Weighting = Literal["plain", "counts"]

_BLOCK_BYTES = 2**24  # rows are solved in blocks whose Gram matrices take this much


class Factors(NamedTuple):
    """One side of the factorisation: rating - mean = u.bias + a.bias + u.vectors'a.vectors."""

    vectors: FloatArray  # (n_rows, rank)
    biases: FloatArray | None  # (n_rows,)

    @property
    def features(self) -> FloatArray:
        """What the rows of the other side are regressed on; its own bias is their intercept."""
        if self.biases is None:
            return self.vectors
        return np.column_stack([self.vectors, np.ones(len(self.vectors))])

    @property
    def solution(self) -> FloatArray:
        """The coefficients of those regressions that made this side."""
        if self.biases is None:
            return self.vectors
        return np.column_stack([self.vectors, self.biases])


class Fit(NamedTuple):
    factors: Factors
    squares: float  # sum over ratings of the squared residual
    penalty: float  # reg times the weighted squares of the coefficients


@dataclass(frozen=True, eq=False)
class Rows:
    """The ratings of each row of the matrix (its users, or its actions), less their mean."""

    pattern: sp.csr_array  # how often each entry was rated
    totals: sp.csr_array  # the sum of its ratings
    squares: float  # the sum of all squared ratings
    ridge: FloatArray  # (n_rows,): reg times the weight of each row

    @classmethod
    def of(
        cls,
        pattern: sp.csr_array,
        totals: sp.csr_array,
        squares: float,
        reg: float,
        weighting: Weighting,
    ) -> Rows:
        counts = np.asarray(pattern.sum(axis=1), np.float64)
        # A row without ratings is held at zero by any ridge: one keeps its equations solvable.
        weights = np.ones_like(counts) if weighting == "plain" else np.maximum(counts, 1.0)
        return cls(pattern, totals, squares, reg * weights)

    @property
    def counts(self) -> IntArray:
        counts: IntArray = self.pattern.sum(axis=1).astype(np.int64)
        return counts

    def solve(self, others: Factors) -> Fit:
        """The factors of these rows that minimise the objective, given the other side's."""
        features = others.features
        solution = np.empty((len(self.ridge), features.shape[1]))
        squares = self.squares
        if others.biases is not None:
            squares -= 2 * float((self.totals @ others.biases).sum())
            squares += float((self.pattern @ others.biases**2).sum())
        for rows, gram, target in self._equations(others):
            ridged = gram + self.ridge[rows, None, None] * np.eye(gram.shape[1])
            block = np.linalg.solve(ridged, target[..., None])[..., 0]
            solution[rows] = block
            squares += float(np.einsum("nd,nde,ne->", block, gram, block, optimize=True))
            squares -= 2 * float(np.einsum("nd,nd->", block, target))
        penalty = float(self.ridge @ np.einsum("nd,nd->n", solution, solution))
        if others.biases is None:
            return Fit(Factors(solution, None), squares, penalty)
        return Fit(Factors(solution[:, :-1].copy(), solution[:, -1].copy()), squares, penalty)

    def degrees_of_freedom(self, others: Factors) -> float:
        """The trace of the hat matrices of all rows: how much of the noise they have fitted."""
        total = 0.0
        for rows, gram, _ in self._equations(others):
            ridged = gram + self.ridge[rows, None, None] * np.eye(gram.shape[1])
            total += float(np.trace(np.linalg.solve(ridged, gram), axis1=1, axis2=2).sum())
        return total

    def penalty(self, factors: Factors) -> float:
        solution = factors.solution
        return float(self.ridge @ np.einsum("nd,nd->n", solution, solution))

    def _equations(self, others: Factors) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """Blocks of rows with their Gram matrices `(n, d, d)` and right-hand sides `(n, d)`.

        A row's Gram matrix is the sum over its ratings of x x': one sparse product with the
        upper triangles of all x x'.
        """
        x = others.features
        d = x.shape[1]
        upper = np.triu_indices(d)
        place = np.empty((d, d), np.intp)
        place[upper] = place.T[upper] = np.arange(len(upper[0]))
        products = x[:, upper[0]] * x[:, upper[1]]
        offsets = None if others.biases is None else others.biases[:, None] * x
        size = max(1, _BLOCK_BYTES // (8 * d * d))
        for start in range(0, len(self.ridge), size):
            rows = slice(start, min(start + size, len(self.ridge)))
            pattern = self.pattern[rows]
            target: Any = self.totals[rows] @ x
            if offsets is not None:
                target -= pattern @ offsets
            yield rows, (pattern @ products)[:, place], target
