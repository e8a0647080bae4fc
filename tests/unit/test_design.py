"""DESIGN.md and CONTRIBUTING.md name files that exist, and a request takes the described walk."""

import re
import sys
import threading
import warnings
from pathlib import Path

import pytest

from latentbandits.serving import embed
from tests.conftest import ONLY_TEST_ALL
from tests.unit.engine_driver import ARMS

with warnings.catch_warnings():  # about which httpx it would rather have
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "latentbandits"


def walk():
    """Return the files of the walk, in their order."""
    text = (ROOT / "DESIGN.md").read_text()
    table = text.split("## One row of a log")[1].split("\n## ")[0]
    return re.findall(r"\| `([\w/]+\.py)` \|", table)


def test_the_walk_names_each_file_once():
    files = walk()
    assert 15 <= len(files) <= 18
    assert len(set(files)) == len(files)
    assert [name for name in files if not (SOURCE / name).is_file()] == []


def entered(run):
    """Return what `run` returns, and the files of the library that it enters, in any thread."""
    files = set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            files.add(frame.f_code.co_filename[len(str(SOURCE)) + 1 :])

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return run(), files
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_a_decision_and_its_reward_take_the_walk(tmp_path):
    files = walk()
    begin, end = files.index("serving/http/endpoints.py"), files.index("beliefs/joint.py")
    app = embed(ARMS, store=f"sqlite:{tmp_path}/store.sqlite", policy="mmTS")

    def use():
        with TestClient(app) as http:
            made = http.post("/v1/decide", json={"session": "ann"})
            told = {"decision_id": made.json()["decision_id"], "value": 0.5}
            return http.post("/v1/reward", json=told).json()["status"]

    status, passed = entered(use)
    assert status == "applied"
    assert [name for name in files[begin : end + 1] if name not in passed] == []


def test_the_map_is_short_and_names_files_that_exist():
    text = (ROOT / "DESIGN.md").read_text()
    assert len(text.split()) <= 1300
    rows = re.findall(r"^\| (`\w+/`.*?) \| .* \| (.*?) \|$", text, re.MULTILINE)
    assert len(rows) >= 9
    for rooms, files in rows:
        first = [SOURCE / room for room in re.findall(r"`(\w+)/`", rooms)]
        assert [room for room in first if not room.is_dir()] == []
        for name in re.findall(r"`([\w/]+\.py)`", files):
            assert any((room / name).is_file() for room in (SOURCE, *first)), name


@pytest.mark.parametrize("page", ["DESIGN.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(page):
    named = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w/.-]+)`", (ROOT / page).read_text())
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_seven_changes_are_described_with_at_most_three_files():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    changes = ("reward family", "policy", "learner", "endpoint", "experiment", "store",
               "policy in a package of your own")  # fmt: skip
    for change in changes:
        section = re.search(rf"### A new {change}\b.*?\n\n(.*?)\n##", text, re.DOTALL)
        assert section, change
        steps = re.findall(r"^(\d)\. ", section[1], re.MULTILINE)
        assert steps in (["1", "2"], ["1", "2", "3"]), change
        (test,) = re.findall(r"Test: `(tests/[\w/]+\.py)`", section[1])
        assert (ROOT / test).is_file()


def test_slow_tests_are_named():
    """CONTRIBUTING.md names every file of tests that `make test` leaves out, wholly or in part."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tests = ROOT / "tests"
    marked = [
        path
        for path in tests.rglob("test_*.py")
        if path != Path(__file__) and "mark.slow" in path.read_text()
    ]
    for path in (*marked, *(tests / name for name in ONLY_TEST_ALL)):
        names = (path.stem, f"tests/{path.relative_to(tests).parts[0]}")
        assert any(f"`{name}`" in text for name in names), path
