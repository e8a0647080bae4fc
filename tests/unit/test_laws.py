"""Laws of mean rewards against scipy.stats, inside and at the ends of their supports."""

import numpy as np
import pytest
import scipy.stats

from latentbandits.models.numerics.laws import Beta, Gamma, InverseGamma, Normal, Points, Student

ONE = np.array([0]), np.array([0])


def law(kind, *parameters, **others):
    return kind(*(np.full((1, 1, 1), float(p)) for p in parameters), **others)


LAWS = {
    "normal": (law(Normal, 0.3, 0.7), scipy.stats.norm(0.3, 0.7)),
    "student": (law(Student, 0.3, 0.7, 5.0), scipy.stats.t(5.0, 0.3, 0.7)),
    "beta": (law(Beta, 2.5, 1.5), scipy.stats.beta(2.5, 1.5)),
    "ratings": (law(Beta, 0.8, 3.0, low=1.0, width=4.0), scipy.stats.beta(0.8, 3.0, 1.0, 4.0)),
    "gamma": (law(Gamma, 2.5, 1.5), scipy.stats.gamma(2.5, scale=1 / 1.5)),
    "flat gamma": (law(Gamma, 0.6, 0.5), scipy.stats.gamma(0.6, scale=2.0)),
    "inverse gamma": (law(InverseGamma, 3.5, 1.5), scipy.stats.invgamma(3.5, scale=1.5)),
}


@pytest.mark.parametrize("name", LAWS)
def test_moments_density_and_distribution_function(name):
    ours, theirs = LAWS[name]
    np.testing.assert_allclose(ours.mean, theirs.mean(), rtol=1e-12)
    np.testing.assert_allclose(ours.variance, theirs.var(), rtol=1e-12)
    x = np.concatenate([theirs.ppf([0.001, 0.1, 0.5, 0.9, 0.999]), [-3.0, 8.0]])
    cases = ours.take(np.zeros(len(x), np.int64), np.zeros(len(x), np.int64))
    np.testing.assert_allclose(cases.below(x[:, None])[:, 0], theirs.cdf(x), rtol=1e-9)
    np.testing.assert_allclose(cases.density(x[:, None])[:, 0], theirs.pdf(x), rtol=1e-9)


def test_at_the_ends_of_a_support():
    for name, end in (("beta", 0.0), ("ratings", 1.0), ("gamma", 0.0), ("inverse gamma", 0.0)):
        cases = LAWS[name][0].take(*ONE)
        assert cases.below(np.array([[end]])) == 0
        assert cases.density(np.array([[end]])) == 0
    top = LAWS["ratings"][0].take(*ONE)
    assert top.below(np.array([[5.0]])) == 1
    assert top.density(np.array([[5.0]])) == 0


def test_a_normal_law_without_deviation_is_a_point():
    point = law(Normal, 0.3, 0.0).take(*ONE)
    x = np.array([[0.3]])
    assert (point.below(x - 1e-9), point.below(x), point.density(x)) == (0, 1, 0)


def test_points():
    """Values 0, 1, 3 with shares 1/2, 1/4, 1/4: mean 1, variance (1/2 + 0 + 1)."""
    values = np.array([0.0, 1.0, 3.0]).reshape(1, 1, 3, 1)
    points = Points(values, np.array([[[0.5, 0.25, 0.25]]]))
    assert (points.mean.item(), points.variance.item()) == (1.0, 1.5)
    cases = points.take(np.array([0, 0, 0]), np.array([0, 0, 0]))
    np.testing.assert_array_equal(cases.below(np.array([[-0.1], [1.0], [3.0]])), [[0], [0.75], [1]])
    np.testing.assert_array_equal(cases.density(np.array([[0.0]] * 3)), [[0.0]] * 3)
