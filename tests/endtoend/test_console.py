"""`console` blocks of README and docs are run, and print what is shown."""

import os

import pytest
from tools.drinks import PATH, table

from tests.endtoend import console

PAGES = sorted(
    page
    for page in (console.ROOT / "README.md", *(console.ROOT / "docs").rglob("*.md"))
    if console.commands(page.read_text())
)
QUICK = ("deploy.md",)
"""Pages that take seconds; the others are run by `make test-all`."""

MOVIELENS = os.environ.get(
    "LATENTBANDITS_DATA", str(console.ROOT.parent / "shared" / "data" / "ml-1m")
)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.stem,
            marks=() if page.name in QUICK else pytest.mark.slow,
        )
        for page in PAGES
    ],
)
def test_commands_print_what_is_shown(page, tmp_path):
    text = page.read_text()
    if "--data ml-1m" in text:
        if not os.path.isdir(MOVIELENS):
            pytest.skip(f"there is no MovieLens 1M at {MOVIELENS}: set LATENTBANDITS_DATA")
        (tmp_path / "ml-1m").symlink_to(MOVIELENS)
    assert console.differences(text, console.run(text, tmp_path, seconds=1200)) == []


def test_differences_are_found():
    page = "```console\n$ one\na\n...\nz\n$ two\nb 1.5\n```\n"
    assert console.commands(page) == [("one", ["a", "...", "z"]), ("two", ["b 1.5"])]
    assert console.differences(page, [["a", "x", "z"], ["b 1.5"]]) == []
    assert len(console.differences(page, [["a", "x"], ["b 1.6"]])) == 2
    assert console.differences(page, [["a", "z", "more"], ["b 1.5"]]) != []
    served = page.replace("$ one", "$ latentbandits serve m")
    assert console.differences(served, [["a", "z"], ["b 1.6"]]) == []


def test_the_log_of_the_tutorial_is_the_generated_one():
    assert PATH.read_text() == table()
