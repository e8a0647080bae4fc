"""What must hold for the probability of being the largest, whatever the means and deviations."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from latentbandits.models.numerics.laws import probability_largest

MEANS = st.floats(-1, 1)
DEVIATIONS = st.one_of(st.just(0.0), st.floats(-12, 2).map(lambda power: 10.0**power))
VARIABLES = st.lists(st.tuples(MEANS, DEVIATIONS), min_size=1, max_size=8)


def solve(variables):
    mean, deviation = np.array(variables).T
    return probability_largest(mean[None, None], deviation[None, None])[0, 0]


@settings(deadline=None)
@given(VARIABLES)
def test_probabilities_sum_to_one(variables):
    actual = solve(variables)
    assert (actual >= 0).all()
    np.testing.assert_allclose(actual.sum(), 1, atol=1e-12)


@settings(deadline=None)
@given(VARIABLES, st.randoms(use_true_random=False))
def test_the_order_of_variables_does_not_matter(variables, random):
    order = list(range(len(variables)))
    random.shuffle(order)
    shuffled = solve([variables[i] for i in order])
    np.testing.assert_allclose(shuffled, solve(variables)[order], atol=1e-9)


@settings(deadline=None)
@given(st.tuples(MEANS, DEVIATIONS), st.tuples(MEANS, DEVIATIONS))
def test_two_variables(first, second):
    scale = np.hypot(first[1], second[1])
    difference = first[0] - second[0]
    expected = ndtr(difference / scale) if scale > 0 else (1 + np.sign(difference)) / 2
    np.testing.assert_allclose(solve([first, second])[0], expected, atol=1e-7)


@settings(deadline=None)
@given(VARIABLES, st.sampled_from([-3, 8, 20]))
def test_the_unit_does_not_matter(variables, power):
    scaled = [(mean * 2.0**power, deviation * 2.0**power) for mean, deviation in variables]
    np.testing.assert_allclose(solve(scaled), solve(variables), atol=1e-9)


@settings(deadline=None)
@given(VARIABLES)
def test_one_more_variable_takes_from_all_others(variables):
    fewer, more = solve(variables), solve([*variables, (0.0, 0.5)])
    assert (more[:-1] <= fewer + 1e-7).all()
