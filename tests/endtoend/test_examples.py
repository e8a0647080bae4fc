"""Every example runs, and becomes a page of the site."""

import json
import runpy
from pathlib import Path

import pytest
from evidence.loop_visits import served
from tools.site.examples import as_page, title

from latentbandits.cli.main import main

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
WITH_A_SERVICE = ("cafe_customers", "close_the_loop", "no_log_yet")
"""Examples that ask a running service: tutorials run the first and the last, a test below the
other."""

SLOW = ("boosted_trees_per_state", "cold_start_films", "stars")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in SLOW else ())
        for path in EXAMPLES
        if path.stem not in WITH_A_SERVICE
    ],
)
def test_it_runs_and_prints(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 2


@pytest.mark.slow
def test_the_loop_is_closed_beside_a_real_service(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLES[0].parent / "close_the_loop.py"))
    example["write_first_model"]()
    first = tmp_path / "models" / "first"
    options = ("--policy", "mmTS", "--explore", "0.2", "--models", str(first.parent))
    with served(first, tmp_path, *options) as url:
        example["visit"](url, 200, seed=1)
        words = ["relearn", "--service", url, "--models", str(first.parent), "--policy", "mmTS"]
        assert main(words) == 0
        example["visit"](url, 20, seed=2)
    printed = capsys.readouterr().out
    assert "200 sessions" in printed
    assert "1600 decisions of 200 sessions" in printed
    assert "20 sessions" in printed.split("record:")[1]
    record = json.loads((tmp_path / "out" / "relearn" / "runs" / "000001.json").read_text())
    assert record["outcome"] == "done"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_becomes_a_page(path):
    page = as_page(path.read_text(), path.name)
    assert title(page)
    assert page.count("```{.python .example}") >= 2
    assert "# %%" not in page
    code = "".join(part.split("```")[0] for part in page.split("```{.python .example}\n")[1:])
    compile(code, path.name, "exec")


def test_there_is_an_example_for_each_kind_of_problem():
    names = {path.stem for path in EXAMPLES}
    wanted = {"clicks", "stars", "boosted_trees_per_state", "drift", "cold_start_films"}
    assert wanted | {"close_the_loop"} <= names
