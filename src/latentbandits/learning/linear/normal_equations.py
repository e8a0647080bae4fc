"""Ridge regressions of many rows at once: their normal equations by sparse products.

With entries of weight w and target y, features x and offsets o of the other side, a row's equations
are sums over its entries of w x x', w x o, w o o, y w x and y w o. The first three are a sparse
matrix of weights times the products of each feature vector with itself, made once for each vector;
the last two are a sparse matrix of weighted targets times the vectors. Users and actions differ in
which side of the matrix is transposed, and share the code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray


class Equations(NamedTuple):
    """Sums over the entries of every row; those of disjoint entries add."""

    products: (
        FloatArray  # (n, p): w x x' above the diagonal, then, if there are offsets, w x o, w o o
    )
    targets: FloatArray  # (n, d) or (n, d + 1): y w x, then y w o


class Solved(NamedTuple):
    """The minimum of every row's weighted squares and penalty."""

    z: FloatArray  # (n, d)
    squares: FloatArray  # (n,): y'Wy is left out: it is the same for all z
    trace: FloatArray | None  # (n,): degrees of freedom


def products(x: FloatArray, offsets: FloatArray | None) -> FloatArray:
    """Return the products of each row of features with itself and its offset, `(n, p)`."""
    above = np.triu_indices(x.shape[1])
    if offsets is None:
        return x[:, above[0]] * x[:, above[1]]
    o = offsets[:, None]
    return np.concatenate([x[:, above[0]] * x[:, above[1]], x * o, o * o], axis=1)


def vectors(x: FloatArray, offsets: FloatArray | None) -> FloatArray:
    """Return features and, behind them, offsets: `(n, d + 1)`."""
    return x if offsets is None else np.column_stack([x, offsets])


def equations(weights: Any, weighted: Any, x: FloatArray, offsets: FloatArray | None) -> Equations:
    """Return the sums of every row of the sparse matrices of weights and of weighted targets."""
    return Equations(weights @ products(x, offsets), weighted @ vectors(x, offsets))


def solve(sums: Equations, ridge: FloatArray, *, offset: bool, freedom: bool = False) -> Solved:
    """Minimise sum w (y - o - x'z)^2 + ridge |z|^2 for every row; `offset`: if there are offsets.

    The squares of the residuals are, at the minimum, y'Wy - 2 o'Wy + o'Wo - z'X'W(y - o)
    - ridge |z|^2: the entries need not be visited again. A row without entries has z = 0.
    """
    d = sums.targets.shape[1] - offset
    gram = unpacked(sums, d)
    target = sums.targets[:, :d]
    if offset:
        target = target - sums.products[:, -d - 1 : -1]
    diagonal = np.einsum("nii->ni", gram)
    diagonal += ridge[:, None]
    z: FloatArray = np.linalg.solve(gram, target[..., None])[..., 0].astype(np.float64, copy=False)
    left = sums.products[:, -1] - 2 * sums.targets[:, -1] if offset else 0.0
    left = left - np.einsum("nd,nd->n", z, target) - ridge * np.einsum("nd,nd->n", z, z)
    trace = None
    if freedom:  # the trace of (G + ridge I)^-1 G
        trace = d - ridge * np.trace(np.linalg.inv(gram), axis1=1, axis2=2)
    return Solved(z, left, trace)


def unpacked(sums: Equations, d: int) -> FloatArray:
    """Return the Gram matrices `(n, d, d)`."""
    gram = np.empty((len(sums.targets), d, d))
    row, column = np.triu_indices(d)
    half = sums.products[:, : len(row)]
    gram[:, row, column] = half
    gram[:, column, row] = half
    return gram
