"""The log density of a normal distribution."""

from __future__ import annotations

import math

import numpy as np

from latentbandits.models.checks import FloatArray

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
