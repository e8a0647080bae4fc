"""The actions of a model, kept with it."""

import numpy as np
import pytest

from latentbandits import ArtefactError, GaussianArms, LinearGaussian, load, save
from latentbandits.models import Catalogue, load_catalogue

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
    ],
)
def test_what_is_no_catalogue(arguments, message):
    with pytest.raises(ValueError, match=message):
        Catalogue(*arguments)
