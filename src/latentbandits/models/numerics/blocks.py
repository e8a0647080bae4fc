"""Work on many sessions in blocks whose arrays stay in the processor's cache.

New arrays of megabytes cost page faults as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray

_BLOCK_NUMBERS = 2**16  # float64 (512 kB); sizes of half or twice this were not faster


def blocks(n_sessions: int, numbers_per_session: int) -> Iterator[slice]:
    """Yield slices that cover all sessions, for arrays of `numbers_per_session` entries each.

    >>> list(blocks(5, 2**15))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    size = max(1, _BLOCK_NUMBERS // numbers_per_session)
    for start in range(0, n_sessions, size):
        yield slice(start, start + size)


# Rows of a table for every session, or of one table for all.


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


# The log density of a normal distribution.

_LOG_2PI = math.log(2 * math.pi)


def log_normal_density(residual: FloatArray, variance: FloatArray | float) -> FloatArray:
    """Return log N(residual; 0, variance), elementwise.

    >>> float(log_normal_density(np.array(0.0), 1.0).round(6))
    -0.918939
    """
    density: FloatArray = residual * residual
    density /= variance
    density += np.log(variance) + _LOG_2PI
    density *= -0.5
    return density
