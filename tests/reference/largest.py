"""P(Y_a is the largest) for independent normal variables, slowly."""

import itertools
import math

import numpy as np
from scipy.integrate import quad
from scipy.special import ndtr


def integrated_largest(mean, deviation, variables=None):
    """One adaptive integral per variable, told where every variable lies; no deviation is zero."""
    result = []
    for a in range(len(mean)) if variables is None else variables:
        others = np.arange(len(mean)) != a
        centre, scale = mean[others], deviation[others]

        def integrand(x, a=a, centre=centre, scale=scale):
            z = (x - mean[a]) / deviation[a]
            density = math.exp(-0.5 * z * z) / (deviation[a] * math.sqrt(2 * math.pi))
            return density * ndtr((x - centre) / scale).prod()

        low, high = mean[a] - 8 * deviation[a], mean[a] + 8 * deviation[a]
        edges = (mean[:, None] + deviation[:, None] * np.array([-4.0, 0, 4])).ravel()
        knots = np.unique([low, high, *edges[(edges > low) & (edges < high)]])
        pieces = [
            quad(integrand, left, right, epsabs=1e-11)[0]
            for left, right in itertools.pairwise(knots)
        ]
        result.append(sum(pieces))
    return np.array(result)


def counted_largest(mean, deviation, n_draws, rng):
    """The share of draws in which each is the largest."""
    draws = mean + deviation * rng.standard_normal((n_draws, len(mean)))
    return np.bincount(draws.argmax(axis=1), minlength=len(mean)) / n_draws
