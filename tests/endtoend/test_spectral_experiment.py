"""`python -m evidence spectral`, small."""

import json

import polars as pl
import pytest
from evidence.__main__ import main


@pytest.mark.slow
def test_reproduce_spectral(tmp_path, capsys):
    out = tmp_path / "out"
    sizes = ["--sizes", "1000", "3000", "--logs", "2", "--jobs", "1"]
    assert main(["spectral", *sizes, "--out", str(out)]) == 0
    results = json.loads((out / "results.json").read_text())
    assert {claim["id"] for claim in results["claims"]} == {
        "spectral-means", "spectral-shares", "spectral-em", "em-allowed"
    }  # fmt: skip
    frame = pl.read_parquet(out / "errors.parquet")
    assert frame.height == 2 * 2 * 4
    error = dict(frame.group_by("method").agg(pl.col("means").mean()).iter_rows())
    assert error["labels known"] < error["em"] < error["moments"]
    assert (out / "spectral.png").exists()
    assert "claims hold" in capsys.readouterr().out


def test_one_size_has_no_slope(tmp_path, capsys):
    code = main(["spectral", "--sizes", "100", "100", "--out", str(tmp_path)])
    assert code == 2
    assert "two different --sizes" in capsys.readouterr().err
