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
from tests.processes.service import RunningService

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
PAGES = sorted(page for page in DOCS.rglob("*.md") if "```python" in page.read_text())
FLAGS = """
from latentbandits import BernoulliArms, save
from latentbandits.models import Catalogue
save(BernoulliArms([[1, 1, 1]], [[1, 1, 1]]), "model", Catalogue(["red", "blue", "green"]))
"""
SLOW = (
    "in-a-notebook", "learn-a-model", "learn-from-lists", "logs-larger-than-memory",
    "prepare-a-log", "user-attributes",
)  # fmt: skip
"""Pages that fit several models."""


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """The working folder: ratings of 50 users for 40 films, and the examples of the repository.

    Registrations are undone.
    """
    for registry in (model_registry, policy_registry):
        monkeypatch.setattr(registry._registry, "added", dict(registry._registry.added))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "learned"), [("openfeature", [1.0]), ("serve-lists", [0.0, 1.0, None])]
)
def test_blocks_that_call_the_service_run(page, learned, empty_folder):
    """Blocks marked `py` need a service; deadlines are longer here, where other tests run too."""
    blocks = BLOCK.findall((DOCS / "how-to" / f"{page}.md").read_text())
    model = "".join(body for language, body in blocks if language == "python") or FLAGS
    exec(compile(model, f"{page} model", "exec"), {})
    options = ("--policy", "mmGreedy", "--click-model", "cascade")
    with RunningService("model", *options, folder=Path.cwd()) as running:
        calls = "".join(body for language, body in blocks if language == "py")
        there = re.sub(r"http://(localhost|127\.0\.0\.1):8000", running.url, calls)
        there = re.sub(r"deadline=[\d.]+", "deadline=30", there)
        exec(compile(there, f"{page} calls", "exec"), {"show": print})
        with running.client(trust_env=False) as http:
            rewards = http.get("/v1/log").json()["rewards"]
    assert [one["value"] for one in rewards] == learned


def test_pages_are_found():
    assert len(PAGES) >= 3


def test_titles_are_plain_text():
    """The site shows a title without formatting, as the name of the next page."""
    titles = {page.name: page.read_text().splitlines()[0] for page in DOCS.rglob("*.md")}
    assert {name: title for name, title in titles.items() if set(title) & set("`*_")} == {}
