"""README is short, its Python blocks run, and `make demo` is the command whose output it shows."""

import contextlib
import io
import re
from pathlib import Path

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


def test_it_reads_in_five_minutes():
    """The words that everybody reads: without code and the folded table of policies."""
    folded = re.sub(r"<details>.*?</details>", "", README, flags=re.DOTALL)
    words = re.sub(r"```.*?```", "", folded, flags=re.DOTALL).split()
    assert len(words) <= 600


def test_make_demo_is_the_experiment_that_the_console_test_runs():
    recipe = (ROOT / "Makefile").read_text().split("\ndemo:")[1].split("\n\n")[0]
    assert "$(BIN)/latentbandits reproduce synthetic --out out/synthetic" in recipe
