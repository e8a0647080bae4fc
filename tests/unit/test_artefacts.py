"""Saved models: exactly what was saved, or refused."""

import json

import numpy as np
import pytest

from latentbandits import ArtefactError, GaussianArms, LinearGaussian, load, save
from latentbandits.models.artefacts import _digest

ARMS = GaussianArms([[0.1, 0.9], [0.8, 0.3]], noise=0.5, spread=0.2, state_prior=[0.3, 0.7])
LINEAR = LinearGaussian([[1.0, 2.0]], noise=0.25, covariances=[[[1.0, 0.5], [0.5, 1.0]]])
PER_SESSION = GaussianArms(np.random.default_rng(0).random((3, 2, 4)), noise=0.5, spread=0.1)


@pytest.mark.parametrize("model", [ARMS, LINEAR, PER_SESSION])
def test_round_trip(model, tmp_path):
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is type(model)
    for name in model.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))


def test_only_two_files_are_left(tmp_path):
    save(ARMS, tmp_path / "model")
    save(LINEAR, tmp_path / "model")
    assert isinstance(load(tmp_path / "model"), LinearGaussian)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["arrays.safetensors", "manifest.json"]


def test_a_folder_that_is_not_a_model_is_not_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("...")
    with pytest.raises(FileExistsError, match="not a saved model"):
        save(ARMS, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").exists()


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(TypeError, match="cannot save a dict"):
        save({}, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_truncated(tmp_path):
    save(ARMS, tmp_path / "model")
    arrays = tmp_path / "model" / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-8])
    with pytest.raises(ArtefactError, match="truncated or altered"):
        load(tmp_path / "model")


def test_every_flipped_bit_is_noticed(tmp_path):
    save(ARMS, tmp_path / "model")
    for name in ("arrays.safetensors", "manifest.json"):
        path = tmp_path / "model" / name
        good = path.read_bytes()
        for position in range(len(good)):
            spoiled = bytearray(good)
            spoiled[position] ^= 1
            path.write_bytes(bytes(spoiled))
            with pytest.raises(ArtefactError):
                load(tmp_path / "model")
        path.write_bytes(good)
    load(tmp_path / "model")


def _edit_manifest(folder, **changes):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(manifest | {"manifest_sha256": _digest(manifest)}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 99}, "schema version 99; .* upgrade"),
        ({"format": "something-else"}, "not the manifest of a latentbandits model"),
        ({"kind": "Oracle"}, "not registered here: unknown model 'Oracle'"),
        ({"kind": "LinearGaussian"}, "does not hold a LinearGaussian"),
    ],
)
def test_foreign_manifests(changes, message, tmp_path):
    save(ARMS, tmp_path / "model")
    _edit_manifest(tmp_path / "model", **changes)
    with pytest.raises(ArtefactError, match=message):
        load(tmp_path / "model")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b'{"format"'])
def test_manifests_that_are_not_json(content, tmp_path):
    save(ARMS, tmp_path / "model")
    (tmp_path / "model" / "manifest.json").write_bytes(content)
    with pytest.raises(ArtefactError):
        load(tmp_path / "model")


def test_missing(tmp_path):
    with pytest.raises(ArtefactError, match=r"is not a saved model: it has no manifest\.json"):
        load(tmp_path / "nowhere")
    save(ARMS, tmp_path / "model")
    (tmp_path / "model" / "arrays.safetensors").unlink()
    with pytest.raises(ArtefactError, match=r"cannot read arrays\.safetensors"):
        load(tmp_path / "model")
