"""DESIGN.md and CONTRIBUTING.md name files that exist, and the walk names each file once."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "latentbandits"


def test_the_walk_names_each_file_once():
    text = (ROOT / "DESIGN.md").read_text()
    walk = text.split("## One row of a log")[1].split("\n## ")[0]
    files = re.findall(r"\| `([\w/]+\.py)` \|", walk)
    assert len(files) >= 15
    assert len(set(files)) == len(files)
    assert [name for name in files if not (SOURCE / name).is_file()] == []


@pytest.mark.parametrize("page", ["DESIGN.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(page):
    named = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w/.-]+)`", (ROOT / page).read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_five_changes_are_described():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for change in ("reward family", "policy", "learner", "endpoint", "experiment"):
        assert re.search(rf"### A new {change}", text), change
