"""The quadratic bound of Jaakkola & Jordan (2000) on a logistic log likelihood.

For c ones in n trials with log-odds z, and any xi,

    c z - n log(1 + e^z) >= (c - n/2) z - n lambda(xi) z^2 + constant,

with lambda(xi) = tanh(xi/2) / (4 xi) and equality at z = xi and z = -xi. The right side is a
weighted square with weight 2 n lambda(xi) and target (c - n/2) / (2 n lambda(xi)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.learning.linear.ridge_rows import Factors, Weighted
from latentbandits.models.checks import FloatArray, IntArray

_BLOCK = 2**18  # entries whose deviance is summed at once


@dataclass(frozen=True)
class LogisticBound:
    """The least squares problem that bounds the likelihood of clicks at log-odds with `mean`."""

    mean: float

    def __call__(self, rates: FloatArray, trials: FloatArray, predicted: FloatArray) -> Weighted:
        """Return targets and weights for log-odds minus `mean`, at the `predicted` log-odds."""
        slope = half_slope(np.abs(predicted + self.mean))
        return Weighted((rates - 0.5) / (2 * slope) - self.mean, 2 * trials * slope)

    def deviance(
        self,
        users: IntArray,
        actions: IntArray,
        rates: FloatArray,
        trials: FloatArray | None,
        user_side: Factors,
        action_side: Factors,
    ) -> float:
        """Return -2 log likelihood of all entries."""
        total = 0.0
        for start in range(0, len(rates), _BLOCK):
            block = slice(start, start + _BLOCK)
            u, a = users[block], actions[block]
            z = np.einsum("nd,nd->n", user_side.vectors[u], action_side.vectors[a]) + self.mean
            if user_side.biases is not None and action_side.biases is not None:
                z += user_side.biases[u] + action_side.biases[a]
            terms = np.logaddexp(0.0, z) - rates[block] * z
            total += float(terms.sum() if trials is None else trials[block] @ terms)
        return 2 * total


def half_slope(xi: FloatArray) -> FloatArray:
    """Return lambda(xi) = tanh(xi / 2) / (4 xi), which is 1/8 at zero.

    >>> half_slope(np.array([0.0, 2.0])).round(4)
    array([0.125 , 0.0952])
    """
    small = xi < 1e-4
    safe = np.where(small, 1.0, xi)
    slope: FloatArray = np.where(small, 0.125, np.tanh(safe / 2) / (4 * safe))
    return slope
