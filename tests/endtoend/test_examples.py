"""Every example runs, and becomes a page of the site."""

import runpy
from pathlib import Path

import pytest
from tools.site.examples import as_page, title

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
WITH_A_SERVICE = ("cafe_customers", "demo", "no_log_yet")
"""Examples with a service: tests of the tutorials run the first and the last, that of README
`demo`."""

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
    assert wanted | {"demo"} <= names
