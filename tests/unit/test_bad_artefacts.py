"""Folders that are no model, and files with valid checksums and bad contents, are refused."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from latentbandits import GaussianArms, load
from latentbandits.models.artefacts import (
    ARRAYS_FILE,
    FORMAT,
    MANIFEST_FILE,
    SCHEMA_VERSION,
    ArtefactError,
    model_files,
)
from latentbandits.serving.engine.model_rows import read_artefact
from latentbandits.serving.errors import Invalid
from tests.unit.engine_driver import ARMS, Driver

GOOD = model_files(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1))
ARRAYS = safetensors.numpy.load(GOOD[ARRAYS_FILE])


def signed(data: bytes, **fields: Any) -> dict[str, bytes]:
    """Return files whose checksums are right."""
    manifest = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "kind": "GaussianArms",
        "arrays_sha256": hashlib.sha256(data).hexdigest(),
        **fields,
    }
    manifest = {name: value for name, value in manifest.items() if value is not ...}
    content = json.dumps(manifest, sort_keys=True).encode()
    manifest["manifest_sha256"] = hashlib.sha256(content).hexdigest()
    return {MANIFEST_FILE: json.dumps(manifest).encode(), ARRAYS_FILE: data}


def with_arrays(**arrays: Any) -> dict[str, bytes]:
    return signed(safetensors.numpy.save({**ARRAYS, **arrays}))


def with_tensor(size: int, **described: Any) -> dict[str, bytes]:
    header = json.dumps({"means": {**described, "data_offsets": [0, size]}}).encode()
    return signed(len(header).to_bytes(8, "little") + header + bytes(size))


BAD = {
    "NaN": with_arrays(means=np.full((2, 2), np.nan)),
    "infinite": with_arrays(spread=np.full((2, 2), np.inf)),
    "huge": with_arrays(noise=np.full((), 1e308)),
    "negative": with_arrays(noise=np.full((), -1.0)),
    "prior of zeros": with_arrays(state_prior=np.zeros(2)),
    "wrong shape": with_arrays(means=np.zeros((2, 2, 2, 2))),
    "bytes instead of numbers": with_arrays(state_prior=np.zeros(2, np.uint8)),
    "unknown array": with_arrays(extra=np.zeros(3)),
    "bad part": with_arrays(**{"gate.nothing": np.zeros(3)}),
    "nested part": with_arrays(**{"gate.encoder": np.frombuffer(b"[" * 100_000, np.uint8)}),
    "huge shape": with_tensor(8, dtype="F64", shape=[10**9, 10**9]),
    "empty huge shape": with_tensor(0, dtype="F64", shape=[10**15, 0]),
    "type that numpy lacks": with_tensor(8, dtype="BF16", shape=[2, 2]),
    "no arrays": signed(b""),
    "no kind": signed(GOOD[ARRAYS_FILE], kind=...),
    "kind of another type": signed(GOOD[ARRAYS_FILE], kind=[3]),
    "long kind": signed(GOOD[ARRAYS_FILE], kind="x" * 100_000),
    "no checksum": signed(GOOD[ARRAYS_FILE], arrays_sha256=...),
    "notes of another type": signed(GOOD[ARRAYS_FILE], notes=3),
    "nested manifest": {**GOOD, MANIFEST_FILE: b'{"a":' * 200_000 + b"1" + b"}" * 200_000},
    "manifest of brackets": {**GOOD, MANIFEST_FILE: b"[" * 200_000},
    "manifest of zeros": {**GOOD, MANIFEST_FILE: bytes(100)},
}
BAD_NOTES = {
    "range of another type": {"reward_range": "x"},
    "policy of another type": {"recommended_policy": 3},
    "nested policy": {"recommended_policy": "Exploring(policy=" * 5_000},
    "unknown policy": {"recommended_policy": "none"},
}
CASES = {  # all that a service refuses; `load` reads neither catalogue nor notes
    **BAD,
    "bad catalogue": with_arrays(**{"catalogue.nothing": np.zeros(3)}),
    **{name: signed(GOOD[ARRAYS_FILE], notes=notes) for name, notes in BAD_NOTES.items()},
}


@pytest.mark.parametrize("case", CASES)
def test_bad_contents_are_refused(case: str, tmp_path: Path) -> None:
    for name, content in CASES[case].items():
        (tmp_path / name).write_bytes(content)
    if case in BAD:
        with pytest.raises(ArtefactError):
            load(tmp_path)
    driver = Driver(ARMS, policy="auto")
    active = driver.engine.library.active.model
    with pytest.raises(Invalid) as refused:
        driver.activate(read_artefact(tmp_path), force=True)
    assert len(refused.value.message) < 1_000
    assert driver.engine.library.active.model == active
    driver.ask("ann")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("replaced", [MANIFEST_FILE, ARRAYS_FILE])
def test_what_is_no_regular_file_is_not_read(kind: str, replaced: str, tmp_path: Path) -> None:
    for name, content in GOOD.items():
        if name != replaced:
            (tmp_path / name).write_bytes(content)
    if kind == "pipe":
        os.mkfifo(tmp_path / replaced)
    elif kind == "device":
        (tmp_path / replaced).symlink_to("/dev/zero")
    else:
        (tmp_path / replaced).mkdir()
    for read, error in ((load, ArtefactError), (read_artefact, Invalid)):
        with pytest.raises(error, match=replaced):
            read(tmp_path)
