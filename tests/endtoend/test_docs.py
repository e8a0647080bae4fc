"""Every page of docs/ is run: Python blocks in order, in an empty folder, with what they print.

The folder links to the examples of the repository, and `$DATA` holds a small table with the columns
of MovieLens. A block that needs a package which the development environment does not have is
skipped by name.
"""

import contextlib
import io
import re
from pathlib import Path

import nbclient
import nbformat
import numpy as np
import polars as pl
import pytest

from latentbandits.models import registry as model_registry
from latentbandits.policies import registry as policy_registry

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
PAGES = sorted(page for page in DOCS.rglob("*.md") if "```python" in page.read_text())
OPTIONAL = ("fastapi",)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """The working folder: ratings of 50 users for 40 films, and the examples of the repository.

    Registrations are undone.
    """
    for registry in (model_registry, policy_registry):
        monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    rng = np.random.default_rng(0)
    user, film = (column.ravel() for column in np.indices((50, 40)))
    ratings = {"userId": user, "movieId": film, "rating": rng.integers(1, 6, len(user))}
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    (tmp_path / "data").mkdir()
    pl.DataFrame(ratings | {"timestamp": np.arange(len(user))}).write_csv(
        tmp_path / "data" / "ratings.csv"
    )
    monkeypatch.setenv("DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_print_what_is_shown(page, empty_folder):
    namespace = {}
    actual = BLOCK.findall(page.read_text())
    for i, (language, body) in enumerate(actual):
        if language != "python":
            continue
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(body, f"{page.name} block {i}", "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            continue
        if i + 1 < len(actual) and actual[i + 1][0] == "text":
            assert printed.getvalue().strip() == actual[i + 1][1].strip(), f"block {i}"


@pytest.mark.slow
def test_the_cells_of_the_notebook_page_show_tables_and_pictures(empty_folder):
    """In a real kernel: what they print, and what Jupyter shows of a cell's last expression."""
    page = (DOCS / "how-to" / "in-a-notebook.md").read_text()
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


def test_pages_are_found():
    assert len(PAGES) >= 3
