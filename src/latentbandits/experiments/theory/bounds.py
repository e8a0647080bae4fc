"""The paper's regret bounds (Section 4.3)."""

from __future__ import annotations

import math

import numpy as np

from latentbandits.models.checks import FloatArray


def regret_bound(
    n_states: int, horizon: int, noise: float, epsilon: float = 0.0, delta: float = 0.0
) -> float:
    """Return n delta + 3 S + 2 n eps + 2 sigma sqrt(6 S n log n): Theorem 2 and Corollary 2.

    With epsilon = delta = 0 it is the bound of Theorem 1 and Corollary 1.

    >>> round(regret_bound(n_states=5, horizon=500, noise=0.5))
    320
    """
    root = math.sqrt(6 * n_states * horizon * math.log(horizon))
    return horizon * (delta + 2 * epsilon) + 3 * n_states + 2 * noise * root


def tightest(errors: FloatArray, horizon: int) -> tuple[float, float]:
    """Return the (epsilon, delta) that minimise n (delta + 2 eps), given models' largest errors.

    `errors` is max over (a, s) of |mu_hat - mu| for each of many models. For eps equal to any of
    them, delta is the measured fraction of models whose error exceeds eps.

    >>> tightest(np.array([0.1, 0.1, 0.1, 0.9]), horizon=100)
    (0.1, 0.25)
    """
    ordered = np.sort(errors)
    exceeded = 1 - np.arange(1, len(ordered) + 1) / len(ordered)
    best = int((exceeded + 2 * ordered).argmin())
    return float(ordered[best]), float(exceeded[best])
