"""Bias, standard deviation and effective sample sizes of an independent implementation.

Bias and deviation are over 200 logs of 5,000 sessions; effective sample sizes are at rounds 1,
4 and 8.
"""

from __future__ import annotations

from typing import NamedTuple


class Expected(NamedTuple):
    bias: float
    deviation: float


ESTIMATORS = {
    "uniform": {
        "IPS": Expected(-0.07, 0.78),
        "SNIPS": Expected(-0.06, 0.25),
        "DR": Expected(-0.03, 0.48),
        "SNDR": Expected(-0.04, 0.25),
    },
    "learning": {
        "IPS": Expected(0.0, 0.145),
        "SNIPS": Expected(0.0, 0.058),
        "DR": Expected(0.0, 0.108),
        "SNDR": Expected(0.0, 0.057),
    },
}
SIZES = {"uniform": (3747, 408, 3), "learning": (4608, 1761, 221)}
