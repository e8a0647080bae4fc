"""`latentbandits evaluate` as a user runs it."""

import json

import numpy as np
import polars as pl
import pytest

from latentbandits import GaussianArms, save
from latentbandits.cli import main

MEANS = np.array([[0.9, 0.5, 0.1], [0.1, 0.4, 0.85]])


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    n, rounds = 2000, 3
    state = np.repeat(rng.integers(2, size=n), rounds)
    action = rng.integers(3, size=n * rounds)
    pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), rounds),
            "round": np.tile(np.arange(1, rounds + 1), n),
            "action": action,
            "reward": MEANS[state, action] + 0.5 * rng.standard_normal(n * rounds),
            "propensity": np.full(n * rounds, 1 / 3),
        }
    ).write_csv(tmp_path / "log.csv")
    save(GaussianArms(MEANS, noise=0.5, spread=0.1), tmp_path / "model")
    return tmp_path


def run(files, *words):
    arguments = ["evaluate", str(files / "log.csv"), "--model", str(files / "model")]
    return main([*arguments, "--out", str(files / "out"), *words])


def test_a_csv_is_evaluated(files, capsys):
    assert run(files, "--policies", "mTS", "mmGreedy", "--against", "logged") == 0
    shown = capsys.readouterr().out
    assert "mmGreedy" in shown
    assert "better" in shown
    results = json.loads((files / "out" / "results.json").read_text())
    assert {"command", "settings", "seconds", "warnings"} <= set(results)
    row = next(r for r in results["estimates"] if r["policy"] == "mTS" and r["estimator"] == "SNDR")
    assert set(row) >= {"policy", "estimator", "horizon", "value", "stderr", "low", "high", "ess"}
    assert row["low"] < row["value"] < row["high"]
    logged = next(r for r in results["estimates"] if r["policy"] == "logged")
    assert row["value"] > logged["value"]
    assert (files / "out" / "evaluate.png").stat().st_size > 10_000


def test_json_is_what_results_json_holds(files, capsys):
    assert run(files, "--policies", "mmGreedy", "--estimators", "SNIPS", "--json") == 0
    printed = capsys.readouterr()
    actual = json.loads(printed.out)
    assert actual == json.loads((files / "out" / "results.json").read_text())
    assert "json" not in actual["settings"]
    assert "results in" in printed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policies", "mmST"], "mmTS"),
        (["--estimators", "IPW"], "no estimator 'IPW'"),
        (["--against", "nobody"], "against must be"),
        (["--horizon", "9"], "horizon must be from 1 to 3"),
        (["--reward", "clicks"], "clicks"),
        (["--unrewarded", "nan"], "finite number"),
    ],
)
def test_bad_input_is_one_line(files, capsys, words, message):
    assert run(files, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_without_propensities_the_remaining_estimators_are_named(files, capsys):
    """Without propensities nothing says that actions did not depend on the past: no queue."""
    path = files / "log.csv"
    pl.read_csv(path).filter(pl.col("round") == 1).drop("propensity").write_csv(path)
    assert run(files, "--policies", "mTS") == 0
    shown = capsys.readouterr()
    assert "only DM can be computed" in shown.err
    assert len(shown.err.strip().splitlines()) == 1
    results = json.loads((files / "out" / "results.json").read_text())
    row = next(r for r in results["estimates"] if r["estimator"] == "DM")
    assert (row["horizon"], row["stderr"], row["low"]) == (1, None, None)


def test_policies_that_need_no_model_are_evaluated_without_one(files, capsys):
    words = ["--policies", "uniform", "UCB1", "--estimators", "IPS"]
    run(files, *words)
    expected = json.loads((files / "out" / "results.json").read_text())["estimates"]
    arguments = ["evaluate", str(files / "log.csv"), "--out", str(files / "alone"), *words]
    assert main(arguments) == 0
    actual = json.loads((files / "alone" / "results.json").read_text())["estimates"]
    assert [row["policy"] for row in actual] == ["uniform", "UCB1", "logged"]
    assert actual[0]["value"] == pytest.approx(expected[0]["value"])
    capsys.readouterr()
    assert main([*arguments, "--policies", "uniform", "mmTS"]) == 2
    assert "mmTS needs a model: name its folder, --model DIR" in capsys.readouterr().err
    assert main(arguments[:2]) == 2
    assert "--model is needed" in capsys.readouterr().err
