"""The probability that a normal variable is the largest: closed forms, then slow integrals."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from latentbandits.models.numerics.laws import probability_largest
from tests.reference.largest import counted_largest, integrated_largest


def solve(mean, deviation, eligible=None):
    mask = None if eligible is None else np.array([eligible])
    return probability_largest(np.array([[mean]]), np.array([[deviation]]), mask)[0, 0]


def test_two_variables_have_a_closed_form():
    # P(Y1 > Y2) = Phi((m1 - m2) / sqrt(s1^2 + s2^2)) = Phi(1 / 5) here
    assert solve([4.0, 3.0], [3.0, 4.0])[0] == pytest.approx(ndtr(0.2), abs=1e-8)


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (1.0, 2.0, 0.5), (1.0, 1e-4, 1e4)])
def test_three_variables_of_equal_mean_have_a_closed_form(scales):
    # an orthant of two correlated differences: 1/4 + asin(rho) / (2 pi)
    actual = solve([0.3, 0.3, 0.3], list(scales))
    for a in range(3):
        own, first, second = (scales[(a + i) % 3] ** 2 for i in range(3))
        rho = own / math.sqrt((own + first) * (own + second))
        assert actual[a] == pytest.approx(0.25 + math.asin(rho) / (2 * math.pi), abs=1e-8)


@pytest.mark.parametrize("n_variables", [1, 2, 10, 300])
def test_equal_variables_are_equally_likely(n_variables):
    actual = solve([0.7] * n_variables, [0.2] * n_variables)
    np.testing.assert_allclose(actual, 1 / n_variables, rtol=1e-12)


@pytest.mark.parametrize("ratio", [1.0, 10.0, 1e3, 1e6])
def test_agrees_with_an_adaptive_integral(ratio):
    rng = np.random.default_rng(int(ratio))
    for _ in range(5):
        mean = rng.random(6)
        deviation = 0.3 * ratio ** -rng.random(6)
        np.testing.assert_allclose(
            solve(mean, deviation), integrated_largest(mean, deviation), atol=1e-7
        )


def test_many_variables_keep_the_promised_accuracy():
    rng = np.random.default_rng(0)
    mean, deviation = np.repeat(rng.random(4), 30), np.full(120, 0.2)
    actual = solve(mean, deviation)
    np.testing.assert_allclose(actual.reshape(4, 30), actual[::30, None] * np.ones(30), rtol=1e-12)
    slow = integrated_largest(mean, deviation, [0, 30, 60, 90])
    np.testing.assert_allclose(actual[::30], slow, atol=1e-8)


def test_agrees_with_counting_draws():
    """Five standard errors of 400,000 draws for 8 shares: fails by chance once in 200,000 seeds."""
    rng = np.random.default_rng(3)
    mean, deviation = rng.random(8), rng.uniform(0.01, 0.5, 8)
    deviation[2] = 0.0
    actual, n_draws = solve(mean, deviation), 400_000
    counted = counted_largest(mean, deviation, n_draws, rng)
    error = np.sqrt(actual * (1 - actual) / n_draws)
    assert (np.abs(actual - counted) <= 5 * error + 1e-9).all()
    as_if_wider = solve(mean, 1.05 * deviation)  # a planted bug that the count must reject
    assert (np.abs(as_if_wider - counted) > 5 * error + 1e-9).any()


def test_points():
    np.testing.assert_allclose(solve([0.1, 0.5, 0.3], [0.0, 0.0, 0.0]), [0, 1, 0])
    np.testing.assert_allclose(solve([0.5, 0.5, 0.3], [0.0, 0.0, 0.0]), [0.5, 0.5, 0])
    # one wide variable against the largest point, 0.5 away and tied
    wide = 1 - ndtr(0.5)
    actual = solve([1.0, 0.5, 1.0, 0.2], [0.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(actual, [(1 - wide) / 2, wide, (1 - wide) / 2, 0], atol=1e-8)


@pytest.mark.parametrize("deviation", [1e-3, 1e-10, 1e-13, 1e-17, 1e-200, 1e-307])
def test_a_deviation_below_the_rounding_of_its_mean_still_counts(deviation):
    np.testing.assert_allclose(solve([1.0, 1.0], [deviation, deviation]), 0.5, atol=1e-8)
    np.testing.assert_allclose(solve([1.0, 1.0], [deviation, 0.0]), 0.5, atol=1e-8)
    expected = 1 - ndtr(1 / math.hypot(deviation, 1.0))
    np.testing.assert_allclose(solve([1.0, 0.0], [deviation, 1.0])[1], expected, atol=1e-8)


def test_a_difference_of_one_rounding_is_seen():
    other = np.nextafter(1e6, 2e6)
    scale = other - 1e6
    actual = solve([1e6, other], [scale, scale])
    assert actual[1] == pytest.approx(ndtr(1 / math.sqrt(2)), abs=1e-7)


def test_what_is_not_eligible_is_as_if_it_were_not_there():
    mean, deviation = [0.4, 0.9, 0.5, 0.6], [0.1, 0.5, 0.0, 0.2]
    actual = solve(mean, deviation, [True, False, True, True])
    assert actual[1] == 0
    np.testing.assert_allclose(actual[[0, 2, 3]], solve([0.4, 0.5, 0.6], [0.1, 0.0, 0.2]))


def test_a_batch_is_many_problems_and_negligible_ones_are_not_solved():
    rng = np.random.default_rng(5)
    mean, deviation = rng.random((40, 5, 7)), rng.random((40, 5, 7)) ** 8
    deviation[rng.random(deviation.shape) < 0.1] = 0.0
    eligible = rng.random((40, 7)) < 0.7
    eligible[:, 3] = True
    weights = np.where(rng.random((40, 5)) < 0.3, 1e-12, 0.5)
    actual = probability_largest(mean, deviation, eligible, weights)
    for i in range(40):
        for j in range(5):
            expected = eligible[i] / eligible[i].sum()
            if weights[i, j] > 0.1:
                expected = solve(mean[i, j], deviation[i, j], eligible[i])
            np.testing.assert_allclose(actual[i, j], expected, atol=1e-12)
