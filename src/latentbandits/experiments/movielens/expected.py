"""Results of an independent implementation, 100 users once, reg = 1; ours must be close."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Expected(NamedTuple):
    """Mean true rating in rounds 1-20, in the last 100, and of the worst 10% of users."""

    first_20: float
    last_100: float
    worst_decile: float


RATING: Mapping[str, Expected] = {
    "LinUCB": Expected(3.58, 4.41, 3.65),
    "LinTS": Expected(3.67, 4.43, 3.60),
    "EXP4": Expected(4.07, 4.14, 3.24),
    "mUCB": Expected(4.15, 4.21, 3.26),
    "mTS": Expected(4.20, 4.26, 3.30),
    "mmTS": Expected(3.91, 4.43, 3.61),
}

AVERAGE: Mapping[str, float] = {"mmTS": 4.35, "mmIDS": 4.38, "mmGreedy": 4.40}
"""Mean true rating over the horizon, of mmTS and of policies beyond the paper."""

FILTERED = {"users": 1353, "movies": 1124, "ratings": 458_145}
"""The numbers of users, movies and ratings in the paper."""
