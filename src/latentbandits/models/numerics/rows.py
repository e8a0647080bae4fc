"""Rows of a table for every session, or of one table for all."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray


def rows(tables: FloatArray, index: IntArray) -> FloatArray:
    """Return the rows `index` (n, ...) of `tables` (1 or n, n_rows, width): `(n, ..., width)`.

    The result is tables[session, index]; `take` is several times faster. A row may have more than
    one axis.

    >>> rows(np.array([[[1.0, 2.0], [3.0, 4.0]]]), np.array([1, 0, 1]))
    array([[3., 4.],
           [1., 2.],
           [3., 4.]])
    """
    if len(tables) == 1:
        table: FloatArray = tables[0]
        return table.take(index, axis=0)
    n_tables, n_rows, *width = tables.shape
    index = (index.T + n_rows * np.arange(n_tables)).T
    return tables.reshape(-1, *width).take(index, axis=0)
