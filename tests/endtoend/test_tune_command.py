"""`latentbandits tune` and `python -m evidence auto`: their output, and bad input in one line."""

import json

import numpy as np
import pytest
from evidence.__main__ import main as evidence_main

from latentbandits import GaussianArms, LinearGaussian, save
from latentbandits.cli.main import main


def test_tune_prints_and_writes_the_winner(tmp_path, capsys):
    model, out = tmp_path / "model", tmp_path / "out"
    save(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1), model)
    words = ["tune", str(model), "--horizon", "10", "--effort", "0.1", "--jobs", "1"]
    assert main([*words, "--out", str(out), "--policies", "mmGreedy", "uniform"]) == 0
    printed = capsys.readouterr().out
    assert "mmGreedy is best over 10 rounds" in printed
    assert "decisions simulated" in printed
    results = json.loads((out / "results.json").read_text())
    assert results["command"] == "tune"
    assert results["winner"] == "mmGreedy"
    assert results["margin"] > 0
    assert {row["policy"] for row in results["table"]} == {"mmGreedy", "uniform"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "mmGredy"], "did you mean 'mmGreedy'"),
        (
            ["--policies", "mBayesUCB(quantile=1.5)"],
            "quantile must be a number above 0 and below 1",
        ),
    ],
)
def test_bad_candidates_are_one_line(tmp_path, capsys, options, message):
    model = tmp_path / "model"
    save(GaussianArms([[0.9, 0.1]], 0.5, 0.1), model)
    assert main(["tune", str(model), "--out", str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_linear_model_without_a_catalogue_is_refused(tmp_path, capsys):
    model = tmp_path / "model"
    save(LinearGaussian([[1.0, 0.0]], 0.5, [np.eye(2)]), model)
    assert main(["tune", str(model), "--out", str(tmp_path / "out")]) == 2
    assert "contexts are needed" in capsys.readouterr().err


@pytest.mark.slow
def test_reproduce_auto_on_one_family(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["auto", "--problems", "family GaussianArms", "--runs", "20"]
    assert evidence_main([*words, "--effort", "0.1", "--jobs", "1", "--out", str(out)]) == 0
    results = json.loads((out / "results.json").read_text())
    assert [claim["id"] for claim in results["claims"]] == ["A family GaussianArms"]
