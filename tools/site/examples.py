"""Examples in jupytext's percent format, as pages."""

from __future__ import annotations

import re
from pathlib import Path

_CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)


def as_page(source: str, name: str) -> str:
    r"""Return an example as Markdown: cells of text as text, cells of code as code.

    >>> print(as_page("# %% [markdown]\n# # Title\n\n# %%\nprint(1)\n", "one.py"))
    # Title
    <BLANKLINE>
    ```{.python .example}
    print(1)
    ```
    <BLANKLINE>
    This page is `examples/one.py`; run it with `python examples/one.py`.
    <BLANKLINE>
    """
    head, *rest = _CELL.split(source)
    if head.strip():
        raise ValueError(f"examples/{name} must begin with a cell: # %% [markdown]")
    parts = []
    for kind, body in zip(rest[::2], rest[1::2], strict=True):
        if "[markdown]" in kind:
            parts.append(
                "\n".join(
                    line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()
                )
            )
        elif body.strip():
            parts.append("```{.python .example}\n" + body.strip() + "\n```")
    parts.append(f"This page is `examples/{name}`; run it with `python examples/{name}`.")
    return "\n\n".join(parts) + "\n"


def title(page: str) -> str:
    """Return the first heading of a page."""
    return next(line[2:] for line in page.splitlines() if line.startswith("# "))


def stage(folder: Path, out: Path) -> list[str]:
    """Write every example of `folder` as a page; return their file names, in order of titles."""
    out.mkdir(parents=True, exist_ok=True)
    pages = {
        path.stem.replace("_", "-"): as_page(path.read_text(), path.name)
        for path in sorted(folder.glob("*.py"))
    }
    for stem, page in pages.items():
        (out / f"{stem}.md").write_text(page)
    return sorted(pages, key=lambda stem: title(pages[stem]))
