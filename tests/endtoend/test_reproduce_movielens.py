"""`latentbandits reproduce movielens`, as a user runs it."""

import json

import polars
import pytest

from latentbandits.cli import main
from latentbandits.experiments.movielens import POLICIES
from tests.reference import movielens_folder
from tests.reference.movielens_folder import REAL, needs_real_data

SMALL = (
    *("--users", "40", "--horizon", "60", "--rank", "4", "--states", "3", "--more-than", "10"),
    *("--reg", "2", "--jobs", "1", "--seed", "3"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "ml-1m"
    return str(movielens_folder.write(path, movielens_folder.make()))


def reproduce(folder, out, *options):
    return main(["reproduce", "movielens", "--data", str(folder), "--out", str(out), *options])


@pytest.mark.slow
def test_tables_figure_curves_and_results(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert reproduce(folder, out, *SMALL, "--splits", "2", "--reg-sweep", "1", "8") == 0
    shown = capsys.readouterr().out
    for words in ("What was learned", "40 users played in each of 2 splits", "Claims", "worst 10%",
                  "Which claims hold for which regularisation", "reg=8"):  # fmt: skip
        assert words in shown
    made = {path.name for path in out.iterdir()}
    assert made == {"results.json", "curves.parquet", "movielens.png", "movielens.svg"}
    results = json.loads((out / "results.json").read_text())
    assert results["experiment"] == "movielens"
    assert results["settings"]["reg"] == 2
    assert len(results["settings"]["learned"]) == 2
    rows = {(row["setting"], row["policy"]): row for row in results["policies"]}
    settings = ("movielens-1m", "movielens-1m, reg=1", "movielens-1m, reg=8")
    assert set(rows) == {(s, p) for s in settings for p in POLICIES}
    claims = [claim["id"] for claim in results["claims"]]
    assert claims == ["M1", "M2", "M3", "M4", "M5", "M6", "B1", "B2"]
    curves = polars.read_parquet(out / "curves.parquet")
    assert curves.columns == ["policy", "round", "mean", "stderr", "worst_decile_mean"]
    assert curves.height == len(POLICIES) * 60
    mean = curves.filter(polars.col("policy") == "mmTS")["mean"].mean()
    assert mean == pytest.approx(rows["movielens-1m", "mmTS"]["reward"], abs=1e-6)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_on_any_number_of_jobs(folder, tmp_path):
    def rewards(name, *options):
        reproduce(folder, tmp_path / name, *SMALL, "--policies", "mTS", "mmTS", *options)
        actual = json.loads((tmp_path / name / "results.json").read_text())
        return [row["reward"] for row in actual["policies"]]

    one = rewards("one")
    assert rewards("two", "--jobs", "2") == pytest.approx(one, abs=1e-12)
    assert rewards("other", "--seed", "4") != one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--states", "100"], "the largest usable number of states is"),
        (["--rank", "500"], "rank 500 is above what the data hold"),
        (["--more-than", "5000"], "choose a smaller --more-than"),
        (["--policies", "mmST"], "unknown policy 'mmST': did you mean 'mmTS'?"),
    ],
)
def test_what_cannot_be_run_leaves_one_line(folder, tmp_path, capsys, options, message):
    assert reproduce(folder, tmp_path / "out", *SMALL, *options) == 2
    error = capsys.readouterr().err
    assert error.startswith("latentbandits: ")
    assert message in error
    assert "Traceback" not in error
    assert list(tmp_path.glob("out/*")) == []


@pytest.mark.parametrize("reg", ["0", "-1", "nan", "inf", "x"])
def test_a_regularisation_must_be_above_zero(folder, tmp_path, capsys, reg):
    with pytest.raises(SystemExit) as caught:
        reproduce(folder, tmp_path, "--reg", reg)
    assert caught.value.code == 2
    assert "argument --reg" in capsys.readouterr().err


def test_without_data_and_network_there_are_two_ways_out(tmp_path, monkeypatch, capsys):
    from latentbandits.experiments import movielens_data as data
    from latentbandits.experiments.movielens_data import Archive

    monkeypatch.delenv("LATENTBANDITS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    nowhere = Archive("http://127.0.0.1:9/ml-1m.zip", "ml-1m", "", "", terms="the terms\n")
    monkeypatch.setattr(data, "MOVIELENS_1M", nowhere)
    assert main(["reproduce", "movielens", "--out", str(tmp_path / "out"), "--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert "the terms" in error
    assert "Two ways out" in error


@pytest.mark.slow
@needs_real_data
def test_every_claim_holds_on_the_real_data(tmp_path):
    assert reproduce(REAL, tmp_path, "--users", "500") == 0
    results = json.loads((tmp_path / "results.json").read_text())
    # M4 is a lead of a hundredth of a star, which takes the default 1,000 users to see.
    assert {c["id"] for c in results["claims"] if c["holds"] is not True} <= {"M4"}
