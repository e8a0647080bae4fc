"""Collect the pages of the site in one folder: docs, generated reference, examples, root files.

A page of the reference that the repository holds too, such as the tables of policies, is replaced
by the generated one.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from tools.site import examples, formulas
from tools.site.reference import PAGES

ROOT = Path(__file__).parents[2]
ASSETS = Path(__file__).parent / "assets"
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "DESIGN.md", "SECURITY.md")

_FENCE = re.compile(r"^(```.*?^```|~~~.*?^~~~)", re.DOTALL | re.MULTILINE)
_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img alt="([^"]*)" src="([^"]+)">\s*</picture>'
)
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def stage(out: Path, root: Path = ROOT) -> None:
    """Write all pages below `out`, with links between them put right."""
    shutil.copytree(root / "docs", out)
    for name in PROJECT:
        _copy(root / name, out / "project" / name.lower())
    for name, page in PAGES.items():
        _write(out / "reference" / f"{name}.md", page())
    examples.stage(root / "examples", out / "examples")
    shutil.copytree(ASSETS, out / "assets")
    for page in out.rglob("*.md"):
        place = _place_in_repository(page, out, root)
        page.write_text(relinked(page.read_text(), place, page, out, root))


def relinked(text: str, place: Path, page: Path, out: Path, root: Path) -> str:
    """Return a page whose links lead to staged pages and whose formulas are MathML.

    `place` is where the page lies in the repository, which its links are relative to. Links to
    files that the site does not have, such as source files, become code.
    """

    def link(match: re.Match[str]) -> str:
        words, address = match[1], match[2]
        path, _, fragment = address.partition("#")
        if not path or "://" in address or address.startswith("mailto:"):
            return match[0]
        target = Path(os.path.normpath(place.parent / path))
        result = _staged(target, fragment, out, root)
        if result is None:
            return words if words.startswith("`") else f"{words} (`{target.relative_to(root)}`)"
        file, anchor = result
        here = os.path.relpath(file, page.parent)
        return f"[{words}]({here}{'#' + anchor if anchor else ''})"

    parts = _FENCE.split(text)
    done = (
        formulas.block(part) if i % 2 else formulas.inline(_LINK.sub(link, both(part)))
        for i, part in enumerate(parts)
    )
    return "".join(done)


def both(text: str) -> str:
    r"""Return text whose pictures follow the switch of the site, not the system's setting alone.

    >>> dark = '<source media="(prefers-color-scheme: dark)" srcset="a-dark.png">'
    >>> both(f'<picture>{dark}<img alt="A" src="a.png"></picture>')
    '![A](a.png#only-light)\n![A](a-dark.png#only-dark)'
    """
    return _PICTURE.sub(r"![\2](\3#only-light)\n![\2](\1#only-dark)", text)


def _staged(target: Path, fragment: str, out: Path, root: Path) -> tuple[Path, str] | None:
    """Return the staged file of a file of the repository, and the anchor in it."""
    if target.parent == root and target.name in PROJECT:
        return out / "project" / target.name.lower(), fragment
    if target == root / "README.md":
        return out / "index.md", ""
    if target.parent == root / "examples":
        return out / "examples" / f"{target.stem.replace('_', '-')}.md", fragment
    if target.is_relative_to(root / "docs"):
        inside = target.relative_to(root / "docs")
        if inside.as_posix() == "reference/index.md" and fragment in PAGES:
            return out / "reference" / f"{fragment}.md", ""
        return out / inside, fragment
    return None


def _place_in_repository(page: Path, out: Path, root: Path) -> Path:
    inside = page.relative_to(out)
    if inside.parts[0] == "project" and inside.name.removesuffix(".md").upper() + ".md" in PROJECT:
        return root / (inside.stem.upper() + ".md")
    if inside.parts[0] == "examples":
        return root / "examples" / f"{inside.stem.replace('-', '_')}.py"
    return root / "docs" / inside


def _copy(source: Path, target: Path) -> None:
    _write(target, source.read_text())


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
