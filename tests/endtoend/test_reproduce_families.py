"""Experiments `drift`, `misspecification` and `families`, small; the example of the docs, run."""

import importlib.util
import json
from pathlib import Path

import pytest
from evidence.__main__ import main as evidence_main

from latentbandits.cli.main import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("experiment", "words", "n_settings"),
    [
        ("drift", ["--policies", "mTS", "Markov mTS", "window mUCB", "mUCB"], 9),
        ("misspecification", ["--policies", "TS", "mTS", "mmTS", "mmTS, catch-all"], 12),
        ("families", [], 11),
    ],
)
@pytest.mark.slow
def test_an_experiment_writes_its_figure_table_and_results(
    experiment, words, n_settings, tmp_path, capsys
):
    out = tmp_path / "out"
    options = ["--runs", "4", "--horizon", "12", "--jobs", "1", "--out", str(out)]
    assert evidence_main([experiment, *words, *options]) == 0
    results = json.loads((out / "results.json").read_text())
    assert results["experiment"] == experiment
    assert len({row["setting"] for row in results["policies"]}) == n_settings
    assert results["claims"]
    assert (out / f"{experiment}.png").stat().st_size > 10_000
    assert "claims hold" in capsys.readouterr().out


def test_a_policy_that_does_not_exist_is_named(tmp_path, capsys):
    out = tmp_path / "out"
    assert evidence_main(["drift", "--policies", "Markov mST", "--out", str(out)]) != 0
    assert "did you mean 'Markov mTS'" in capsys.readouterr().err
    assert not out.exists() or list(out.iterdir()) == []


def test_a_nested_model_can_be_inspected(tmp_path, capsys):
    from latentbandits import BernoulliArms, Markov, save

    save(Markov.switching(BernoulliArms([[1.0], [2.0]], 3.0), 0.1), tmp_path / "model")
    assert main(["inspect", str(tmp_path / "model")]) == 0
    printed = capsys.readouterr().out
    assert "Markov, 2 states" in printed
    assert "model:BernoulliArms/alpha" in printed


@pytest.mark.slow
def test_boosted_trees_per_state_personalise():
    path = ROOT / "examples" / "boosted_trees_per_state.py"
    spec = importlib.util.spec_from_file_location("example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    actual = example.main()
    (_, alike), (_, own) = actual.values()
    assert own > alike + 0.3
