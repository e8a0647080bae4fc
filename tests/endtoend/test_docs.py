"""Every page of docs/ is run: Python blocks in order, in an empty folder, with what they print.

The folder links to the examples of the repository, and `$DATA` holds a small table with the columns
of MovieLens. None is skipped.
"""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from latentbandits.models import registry as model_registry
from latentbandits.policies import registry as policy_registry

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
PAGES = sorted(page for page in DOCS.rglob("*.md") if "```python" in page.read_text())
SLOW = ("learn-a-model", "logs-larger-than-memory", "prepare-a-log", "user-attributes")
"""Pages that fit several models."""


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


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.slow if page.stem in SLOW else ())
        for page in PAGES
    ],
)
def test_python_blocks_print_what_is_shown(page, empty_folder):
    namespace = {}
    actual = BLOCK.findall(page.read_text())
    for i, (language, body) in enumerate(actual):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, f"{page.name} block {i}", "exec"), namespace)
        if i + 1 < len(actual) and actual[i + 1][0] == "text":
            assert printed.getvalue().strip() == actual[i + 1][1].strip(), f"block {i}"


def test_pages_are_found():
    assert len(PAGES) >= 3
