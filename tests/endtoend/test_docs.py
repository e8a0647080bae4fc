"""Pages of docs/ that stand alone are run: Python blocks in order, with what they print."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
PAGES = [DOCS / "which-model-for-which-reward.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_print_what_is_shown(page):
    namespace = {}
    found = BLOCK.findall(page.read_text())
    for i, (language, body) in enumerate(found):
        if language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(body, f"{page.name} block {i}", "exec"), namespace)
            if i + 1 < len(found) and found[i + 1][0] == "text":
                assert printed.getvalue().strip() == found[i + 1][1].strip(), f"block {i}"
