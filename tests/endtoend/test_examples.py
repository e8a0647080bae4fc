"""Every example runs, and becomes a page of the site; so do the cells of the notebook page."""

import runpy
import shutil
from pathlib import Path

import nbclient
import nbformat
import polars as pl
import pytest
from examples import demo
from tools.site.examples import as_page, title

from tests.endtoend.test_docs import BLOCK

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WITH_A_SERVICE = ("cafe_customers", "demo", "no_log_yet")
"""Examples with a service: tests of the tutorials run the first and the last, that of README
`demo`."""

SLOW = ("boosted_trees_per_state", "clicks", "cold_start_films", "stars")


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
def test_the_cells_of_the_notebook_page_show_tables_and_pictures(tmp_path, monkeypatch):
    """In a real kernel: what they print, and what Jupyter shows of a cell's last expression."""
    log = Path("examples", "data", "drinks.csv")
    (tmp_path / log.parent).mkdir(parents=True)
    shutil.copy(ROOT / log, tmp_path / log)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "in-a-notebook.md").read_text()
    blocks = [block for block in BLOCK.findall(page) if block[0] in ("python", "text")]
    cells = [nbformat.v4.new_code_cell(body) for language, body in blocks if language == "python"]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    printed = [_printed(cell) for cell in cells]
    position = -1
    for language, body in blocks:
        position += language == "python"
        if language == "text":
            assert printed[position].strip() == body.strip()
    shown = {cell.source.strip(): _shown(cell) for cell in cells if not cell.source.count("\n") > 1}
    assert shown.keys() == {"fit", "fit.plot()", "agent", "results", "evaluation"}
    assert "image/png" in shown.pop("fit.plot()")
    for source, data in shown.items():
        assert "<table>" in data["text/html"], source
        assert "data:image/png;base64," in data["text/html"], source


def _printed(cell):
    return "".join(out.text for out in cell.outputs if out.output_type == "stream")


def _shown(cell):
    (data,) = (out.data for out in cell.outputs if out.output_type == "execute_result")
    return data


def test_the_demonstration_compares_groups_over_visitors(tmp_path, monkeypatch, capsys):
    """Two visitors of each group with known stars; visitors before the last wave do not count
    for the groups of the experiment.
    """
    monkeypatch.setattr(demo, "OUT", tmp_path)
    groups = [
        ("wave 1", "policy", "first", (2, 4)),
        ("last wave", "policy", "second", (4, 5)),
        ("last wave", "holdout", "second", (3, 3)),
        ("last wave", "scratch", "second", (1, 2)),
        ("wave 1", "holdout", "first", (5, 5)),
    ]
    log = [
        (f"{wave}, visitor {group}{i}", group, model, drink, float(stars))
        for wave, group, model, both in groups
        for i, stars in enumerate(both)
        for drink in range(1, demo.ROUNDS + 1)
    ]
    columns = ["session", "group", "model", "round", "reward"]
    demo.show(pl.DataFrame(log, columns, orient="row"))
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "popularity 2 3" in printed
    assert "from scratch 2 1.50 ±0.50" in printed
    assert "latentbandits, model of the log 2 3.0 ±1.0" in printed
    assert "latentbandits, relearned 2 4.50 ±0.50" in printed
    assert (tmp_path / "demo.png").stat().st_size > 10_000


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
