"""Vectors of features that requests send by name."""

import numpy as np
import pytest

from latentbandits.models.attributes.columns import Encoder, Vector

ENCODER = Encoder((Vector("numbers", 2),))


@pytest.mark.parametrize("value", [[1, 2.5], (True, 0), np.array([1.0, 2.0])])
def test_a_list_of_numbers_is_taken_as_it_is(value):
    ENCODER.check({"numbers": value}, "features")
    np.testing.assert_array_equal(ENCODER.encode([{"numbers": value}]), [np.array(value, float)])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([None, 1.0], "features: numbers must be a list of 2 finite numbers; it holds None"),
        ([float("nan"), 1.0], "it holds nan"),
        ([1.0, float("inf")], "it holds inf"),
        (["1", "2"], "it holds '1'"),
        ([[1.0], [2.0]], r"it holds \[1\.0\]"),
        ([1.0], "must be a list of 2 numbers; got 1 numbers"),
        ("ab", "must be a list of 2 numbers; got 'ab'"),
        (None, "must be a list of 2 numbers; got None"),
    ],
)
def test_other_values_are_refused(value, message):
    with pytest.raises(ValueError, match=message):
        ENCODER.check({"numbers": value}, "features")
