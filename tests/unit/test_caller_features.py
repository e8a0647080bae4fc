"""A successor of a model whose callers bring features: same numbers, same names."""

import numpy as np
import polars as pl
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.learning.fit_options import FitOptions
from latentbandits.learning.fitting import Fit
from latentbandits.loop.caller_features import encode_log, keep_names
from latentbandits.loop.relearn import Model
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Category, Encoder, Number
from latentbandits.models.attributes.parts import part, with_parts

ENCODER = Encoder((Number("price", 10.0, 2.0), Category("kind", ("a", "b"), (0.5, 0.5))), True)


def linear(n_features, encoder=None):
    model = LinearGaussian(
        np.zeros((2, n_features)), 0.5, np.eye(n_features)[None] * np.ones((2, 1, 1))
    )
    return model if encoder is None else with_parts(model, encoder=encoder)


def test_only_a_catalogue_without_vectors_needs_the_callers_features():
    def brings_features(model, catalogue):
        return Model("id", model, catalogue, {}).brings_features

    ids = ("x", "y")
    assert brings_features(linear(3), None)
    assert brings_features(linear(3), Catalogue(ids, None, None))
    assert not brings_features(linear(3), Catalogue(ids, None, np.ones((2, 3))))
    assert not brings_features(GaussianArms(np.ones((2, 2)), 0.5), Catalogue(ids, None, None))


def test_an_older_log_gets_the_numbers_that_the_service_logs(tmp_path):
    table = {
        "who": ["u", "v"],
        "action": ["x", "y"],
        "reward": [1.0, 0.0],
        "price": [14.0, 8.0],
        "kind": ["b", "a"],
    }
    pl.DataFrame(table).write_csv(tmp_path / "old.csv")
    model = linear(3, ENCODER)
    path = encode_log(
        str(tmp_path / "old.csv"), FitOptions(user="who"), model, tmp_path / "new.parquet"
    )
    written = pl.read_parquet(path)
    expected = ENCODER.encode([{"price": 14.0, "kind": "b"}, {"price": 8.0, "kind": "a"}])
    assert expected[0].tolist() == [1.0, 2.0, 0.5]  # by hand: (14 - 10) / 2; "b" less its average
    np.testing.assert_array_equal(written["features"].to_list(), expected)
    assert written["user"].to_list() == ["u", "v"]


def test_an_export_is_taken_as_it_is(tmp_path):
    export = tmp_path / "export.parquet"
    pl.DataFrame({"decision_id": ["1"], "features": [[[1.0]]]}).write_parquet(export)
    assert encode_log(
        str(export), FitOptions(), linear(3, ENCODER), tmp_path / "new.parquet"
    ) == str(export)
    assert not (tmp_path / "new.parquet").exists()


def test_an_older_log_without_the_columns_is_refused_with_their_names(tmp_path):
    table = {"user": ["u"], "action": ["x"], "reward": [1.0], "price": [1.0]}
    pl.DataFrame(table).write_csv(tmp_path / "old.csv")
    with pytest.raises(ValueError, match=r"old\.csv has no column kind: the active model"):
        encode_log(
            str(tmp_path / "old.csv"), FitOptions(), linear(3, ENCODER), tmp_path / "new.parquet"
        )


def test_the_successor_keeps_names_and_refuses_another_length():
    actual = Fit(linear(3), Catalogue(("x", "y"), None, None), {"settings": {"states": 2}})
    kept = keep_names(actual, linear(3, ENCODER))
    assert part(kept.model, "encoder") == ENCODER
    assert kept.report["settings"]["encoded_features"] == list(ENCODER.labels)
    assert part(keep_names(kept, linear(3)).model, "encoder") is None
    with pytest.raises(ValueError, match="callers send 4 features, the log has 3"):
        keep_names(actual, linear(4))
