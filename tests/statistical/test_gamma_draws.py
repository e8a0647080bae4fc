"""Gamma draws of mixed shapes against their distribution function: Kolmogorov-Smirnov tests that
reject a correct sampler with probability 1e-6 per shape, and reject planted bugs.
"""

import numpy as np
import pytest
from scipy.stats import gamma as distribution
from scipy.stats import kstest

from latentbandits.models.arms import dirichlet

ALPHA = 1e-6
N = 60_000
SHAPES = (0.01, 0.2, 0.4, 0.41, 0.5, 0.7, 0.99, 1.0, 1.5, 3.0, 10.0, 1e2, 1e4, 1e6, 1.1e6, 1e9)


def p_values():
    """One array in which the shapes take turns; the p-value of each shape's draws."""
    shapes = np.tile(SHAPES, (N, 1))
    draws = dirichlet.gamma_draws(shapes, np.random.default_rng(11))
    assert draws.shape == shapes.shape
    assert draws.dtype == np.float64
    return {
        shape: kstest(column, distribution(shape).cdf).pvalue
        for shape, column in zip(SHAPES, draws.T, strict=True)
    }


def test_draws_of_mixed_shapes_have_their_distributions():
    assert min(p_values().values()) > ALPHA


def test_draws_are_independent_of_their_neighbours():
    """Box-Muller makes pairs: squares of pairs would show what the draws themselves may not."""
    draws = np.log(dirichlet.gamma_draws(np.full(2 * N, 2.5), np.random.default_rng(12)))
    standard = (draws - draws.mean()) / draws.std()
    for other in (np.roll(standard, 1), np.roll(standard, N)):
        for power in (1, 2):
            correlation = np.corrcoef(standard**power, other**power)[0, 1]
            assert abs(correlation) < 5 / np.sqrt(2 * N)  # with probability 6e-7 by chance


PLANTED = {
    "every proposal is kept": (
        "_rejected", lambda d, y, uniform, unsure: np.empty(0, int)),
    "every proposal of a positive draw is kept": (
        "_rejected", lambda d, y, uniform, unsure: unsure[y[unsure] <= -1]),
    "the uniform is not looked at": (
        "_rejected", lambda d, y, uniform, unsure: unsure),
    "a bound of nothing": ("_QUARTIC", 0.0),
    "normals that are too narrow": (
        "_normals", lambda n, rng: 0.95 * rng.standard_normal(n, dtype=np.float32)),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_caught(bug, monkeypatch):
    monkeypatch.setattr(dirichlet, *PLANTED[bug])
    assert min(p_values().values()) < ALPHA


def test_the_bound_on_h_holds_from_its_leftmost_place():
    y = np.concatenate([np.linspace(dirichlet._LEFTMOST, -1e-2, 10_000), np.geomspace(1e-2, 1e3)])
    h = 3 * y - 1.5 * y**2 + y**3 - 3 * np.log1p(y)
    assert (h > 0).all()
    assert (h <= dirichlet._QUARTIC * y**4).all()


def test_few_draws_are_numpys_own():
    shapes = np.linspace(0.1, 9.0, 7)
    ours = dirichlet.gamma_draws(shapes, np.random.default_rng(3))
    np.testing.assert_array_equal(ours, np.random.default_rng(3).standard_gamma(shapes))
