"""README is short, its Python blocks run, and make runs what the console test runs for it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.endtoend import console

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def test_python_blocks_run_and_print_what_is_shown():
    namespace = {}
    actual = BLOCK.findall(README)
    assert any(name == "python" for name, _ in actual)
    for i, (name, body) in enumerate(actual):
        if name != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, f"README block {i}", "exec"), namespace)
        if i + 1 < len(actual) and actual[i + 1][0] == "text":
            assert printed.getvalue().strip() == actual[i + 1][1].strip(), f"block {i}"


def test_the_first_example_is_ten_lines():
    first = next(body for name, body in BLOCK.findall(README) if name == "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 10


def test_it_has_at_most_600_words():
    """All words count, those of code too."""
    assert len(README.split()) <= 600


def test_the_first_command_is_on_the_first_screen():
    lines = README.split("```")[0].splitlines()
    assert len(lines) <= 25


@pytest.mark.parametrize("target", ["demo", "paper"])
def test_make_runs_what_the_console_test_runs(target):
    recipe = (ROOT / "Makefile").read_text().split(f"\n{target}:")[1].split("\n\n")[0]
    assert f"$(BIN)/{console.STANDS_FOR[f'make {target}']}" in recipe


def test_pages_name_the_policy_that_the_tutorial_recommends():
    tutorial = (ROOT / "docs/tutorials/from-a-log-to-a-service.md").read_text()
    [policy] = re.findall(r"\. Use (.+)\.$", tutorial, re.MULTILINE)
    assert f". Use {policy}.\n" in README
    concept = (ROOT / "docs/concepts/m-against-mm.md").read_text()
    assert f"it recommends `{policy}`" in concept
