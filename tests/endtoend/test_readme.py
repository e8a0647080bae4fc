"""README is run: its Python blocks in order, in one namespace, with what they print."""

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

from latentbandits.cli.main import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(language):
    return [body for name, body in BLOCK.findall(README.read_text()) if name == language]


def test_python_blocks_run_and_print_what_is_shown():
    namespace = {}
    found = BLOCK.findall(README.read_text())
    assert sum(name == "python" for name, _ in found) >= 3
    for i, (name, body) in enumerate(found):
        if name != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, f"README block {i}", "exec"), namespace)
        if i + 1 < len(found) and found[i + 1][0] == "text":
            assert printed.getvalue().strip() == found[i + 1][1].strip(), f"block {i}"


def test_the_first_example_is_ten_lines():
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 10


REPRODUCED = [body for body in blocks("console") if body.startswith("$ latentbandits reproduce")]
MOVIELENS = Path(os.environ.get("LATENTBANDITS_DATA", ROOT.parent / "shared" / "data" / "ml-1m"))


@pytest.mark.slow
@pytest.mark.parametrize("shown", REPRODUCED, ids=lambda shown: shown.splitlines()[0])
def test_the_tables_shown_are_the_tables_printed(shown, tmp_path, capsys):
    """Every line under `$ latentbandits reproduce ...` is printed by that command, to the digit."""
    command, *lines = shown.splitlines()
    words = command.split()[2:]
    if "ml-1m" in words:
        if not MOVIELENS.is_dir():
            pytest.skip(f"there is no MovieLens 1M at {MOVIELENS}: set LATENTBANDITS_DATA")
        words[words.index("ml-1m")] = str(MOVIELENS)
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        if line.strip() and "results in" not in line and line.strip() != "...":
            assert line.strip() in printed, line
