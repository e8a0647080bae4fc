"""Work on many sessions in blocks whose arrays stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator

_BLOCK_NUMBERS = 2**16  # float64 (512 kB); sizes of half or twice this were not faster


def blocks(n_sessions: int, numbers_per_session: int) -> Iterator[slice]:
    """Yield slices that cover all sessions, for arrays of `numbers_per_session` entries each.

    >>> list(blocks(5, 2**15))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    size = max(1, _BLOCK_NUMBERS // numbers_per_session)
    for start in range(0, n_sessions, size):
        yield slice(start, start + size)
