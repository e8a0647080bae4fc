"""The actions of a model, kept with it."""

import numpy as np
import pytest

from latentbandits import ArtefactError, GaussianArms, LinearGaussian, load, save
from latentbandits.models import Catalogue, load_catalogue
from latentbandits.policies.registry import build, inputs_of

ARMS = GaussianArms([[0.1, 0.9]], noise=0.5)
LINEAR = LinearGaussian([[1.0, 2.0]], noise=0.25)
NAMED = Catalogue(["7", "ü"], ["Seven", "naïve \u2603"])
FEATURES = Catalogue(["a", "b", "c"], features=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


@pytest.mark.parametrize(("model", "catalogue"), [(ARMS, NAMED), (LINEAR, FEATURES)])
def test_round_trip(model, catalogue, tmp_path):
    save(model, tmp_path / "model", catalogue)
    again = load_catalogue(tmp_path / "model")
    assert again.ids == catalogue.ids
    assert again.names == catalogue.names
    if catalogue.features is None:
        assert again.features is None
    else:
        np.testing.assert_array_equal(again.features, catalogue.features)
    np.testing.assert_array_equal(load(tmp_path / "model").state_prior, model.state_prior)


def test_a_model_without_one(tmp_path):
    save(ARMS, tmp_path / "model")
    assert load_catalogue(tmp_path / "model") is None


def test_it_is_under_the_manifests_seal(tmp_path):
    save(LINEAR, tmp_path / "model", FEATURES)
    file = tmp_path / "model" / "arrays.safetensors"
    data = bytearray(file.read_bytes())
    place = bytes(data).index(np.float64(5.0).tobytes())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArtefactError, match="not the file that was saved"):
        load_catalogue(tmp_path / "model")


def test_lookup():
    assert FEATURES.indices(["c", "a"]).tolist() == [2, 0]
    assert FEATURES.context(["c"]).tolist() == [[[5.0, 6.0]]]
    with pytest.raises(ValueError, match=r"no action 'z'; it has 3 actions, such as 'a'"):
        FEATURES.indices(["a", "z"])
    with pytest.raises(ValueError, match="no features"):
        NAMED.context(["7"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "ids"),
        ((["a", "a"],), "different"),
        (([1, 2],), "texts"),
        ((["a", "b"], ["one"]), "2 ids"),
        ((["a", "b"], None, [[1.0]]), "row for each of 2"),
        ((["a"], None, [[np.nan]]), "finite"),
        ((["a", "b"], None, None, (), 0, [1.0]), "averages must be a number or NaN for each of 2"),
        ((["a"], None, None, (), 0, [np.inf]), "averages must be"),
    ],
)
def test_what_is_no_catalogue(arguments, message):
    with pytest.raises(ValueError, match=message):
        Catalogue(*arguments)


AVERAGED = Catalogue(["a", "b"], averages=[0.7, np.nan])


def test_averages_are_saved_and_new_actions_have_none(tmp_path):
    save(ARMS, tmp_path / "model", AVERAGED.longer(["c"]).retire(["a"]))
    again = load_catalogue(tmp_path / "model")
    np.testing.assert_array_equal(again.averages, [0.7, np.nan, np.nan])
    other = Catalogue(["a", "b"], averages=[0.1, 0.2])
    np.testing.assert_array_equal(AVERAGED.sharing(other).averages, AVERAGED.averages)
    assert NAMED.longer(["c"]).averages is None


def test_popularity_goes_by_the_averages_of_the_log():
    """By the model b is best; by the log's averages a is. Without an average, the model decides."""
    averaged = build("popularity", inputs_of(ARMS, Catalogue(["a", "b"], averages=[0.7, 0.2])))
    rng = np.random.default_rng(0)
    assert averaged.decide(averaged.init(3), None, rng).action.tolist() == [0, 0, 0]
    assert averaged.decide(averaged.init(), None, rng, eligible=[[False, True]]).action == [1]
    for catalogue in (AVERAGED, NAMED, None):
        policy = build("popularity", inputs_of(ARMS, catalogue))
        assert policy.decide(policy.init(), None, rng).action == [1]
    with pytest.raises(ValueError, match="option"):
        build("popularity(averages=1)", inputs_of(ARMS, None))
