"""Per-row arrays in chunks of 256 rows, copied when they are written.

`update` must not change a belief, and copying the sums of all users for every reward would cost
more than the mathematics. Rows (users, clusters, edges) are kept in chunks; a write copies the
chunks that it touches and shares all others. A chunk is a tuple, often a NamedTuple, of arrays
`(n_populations, rows, ...)`, so a belief stays a tree of arrays with the session axis first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.checks import IntArray

ROWS = 256
ChunkT = TypeVar("ChunkT", bound=tuple[Any, ...])


def _maker(chunk: ChunkT) -> Callable[[Iterable[Any]], ChunkT]:
    """Return the constructor of a NamedTuple, or of a plain tuple, from its fields."""
    return getattr(type(chunk), "_make", type(chunk))


def repeat(row: ChunkT, n_populations: int, n_rows: int, rows: int = ROWS) -> tuple[ChunkT, ...]:
    """Return chunks of `n_rows` rows that are all alike; memory is taken when a row is written."""
    make = _maker(row)
    return tuple(
        make(
            np.broadcast_to(value, (n_populations, min(rows, n_rows - start), *np.shape(value)))
            for value in row
        )
        for start in range(0, n_rows, rows)
    )


def split(arrays: ChunkT, n_populations: int, rows: int = ROWS) -> tuple[ChunkT, ...]:
    """Return `arrays` `(n_rows, ...)` as chunks, the same for every population."""
    make = _maker(arrays)
    n_rows = len(arrays[0])
    return tuple(
        make(
            np.broadcast_to(a[s : s + rows], (n_populations, *a[s : s + rows].shape))
            for a in arrays
        )
        for s in range(0, n_rows, rows)
    )


def take(chunks: tuple[ChunkT, ...], row: IntArray, rows: int = ROWS) -> ChunkT:
    """Return one row of each population, each field `(n_populations, ...)`."""
    make = _maker(chunks[0])
    if len(chunks) == 1:
        population = np.arange(len(row))
        result: ChunkT = make(field[population, row] for field in chunks[0])
    elif len(row) == 1:
        place, inside = divmod(int(row[0]), rows)
        result = make(field[:, inside] for field in chunks[place])
    else:
        where = list(enumerate(zip(*np.divmod(row, rows), strict=True)))
        result = make(
            np.stack([chunks[c][f][b, i] for b, (c, i) in where]) for f in range(len(chunks[0]))
        )
    return result


def put(
    chunks: tuple[ChunkT, ...], row: IntArray, values: ChunkT, rows: int = ROWS
) -> tuple[ChunkT, ...]:
    """Return chunks with one row of each population replaced; untouched chunks are shared."""
    place, inside = np.divmod(row, rows)
    result = list(chunks)
    for c in [int(place[0])] if len(place) == 1 else np.unique(place).tolist():
        mine = place == c
        some, there = np.flatnonzero(mine), inside[mine]
        fields = []
        for old, new in zip(chunks[c], values, strict=True):
            field = old.copy()
            field[some, there] = new[some]
            fields.append(field)
        result[c] = _maker(chunks[c])(fields)
    return tuple(result)


def field(chunks: tuple[ChunkT, ...], index: int, population: int) -> NDArray[Any]:
    """Return one field of all rows of a population, `(n_rows, ...)`."""
    return np.concatenate([chunk[index][population] for chunk in chunks])


def select(
    chunks: tuple[ChunkT, ...], index: int, population: int, row: IntArray, rows: int = ROWS
) -> NDArray[Any]:
    """Return one field of some rows of a population, `(len(row), ...)`, in their order."""
    if len(chunks) == 1:
        chosen: NDArray[Any] = chunks[0][index][population, row]
        return chosen
    first = chunks[0][index]
    result = np.empty((len(row), *first.shape[2:]), first.dtype)
    place = row // rows
    for c in np.unique(place).tolist():
        mine = place == c
        result[mine] = chunks[c][index][population, row[mine] - c * rows]
    return result
