"""`python -m tools.site`: build the documentation site strictly, without a network.

Zensical builds it: the maintained successor of Material for MkDocs, whose support ends in 2027. It
reads the same settings and refuses links to pages and headings that do not exist. A browser starts
no web workers from a file, so `assets/iframe-worker.js` runs the search in a frame there. Pages lie
in the repository so that their links work there too; only the reference exists on the site alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.site import links, navigation, omissions
from tools.site.stage import stage


def main() -> int:
    """Stage the pages, check that nothing is left out, build, and check the result."""
    summary = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=summary)
    parser.add_argument("--out", default="out/site", help="the folder to write (default out/site)")
    out = Path(parser.parse_args().out)
    start = time.perf_counter()
    work = out.parent / f"{out.name}-source"
    shutil.rmtree(work, ignore_errors=True)
    stage(work / "docs")
    result = omissions.missing(work / "docs" / "reference")
    if not result:
        config = work / "mkdocs.yml"
        config.write_text(json.dumps(configuration(work / "docs"), indent=2))
        code = build(config)
        if code != 0:
            return code
        result = links.problems((work / "site").resolve())
    for line in result:
        sys.stderr.write(f"site: {line}\n")
    if result:
        return 1
    shutil.rmtree(out, ignore_errors=True)
    (work / "site").rename(out)
    pages = len(list(out.rglob("*.html")))
    seconds = time.perf_counter() - start
    sys.stdout.write(f"{pages} pages in {seconds:.0f} s: open {out}/index.html\n")
    return 0


def build(config: Path) -> int:
    """Run the site generator; a warning is an error."""
    generator = Path(sys.executable).with_name("zensical")
    words = [str(generator), "build", "--strict", "--clean", "--config-file", str(config)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
    return done.returncode


def configuration(docs: Path) -> dict[str, object]:
    """Return the settings of the site: it opens from a file and loads nothing from elsewhere."""
    return {
        "site_name": "latentbandits",
        "site_description": "Learn from logs which kinds of users there are; find out in a few "
        "rounds which one this is.",
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,
            "features": [
                "navigation.tabs",
                "navigation.indexes",
                "navigation.footer",
                "content.code.copy",
                "toc.follow",
            ],
            "palette": [
                {
                    "media": f"(prefers-color-scheme: {name})",
                    "scheme": scheme,
                    "toggle": {"icon": icon, "name": f"Switch to {other}"},
                }
                for name, scheme, icon, other in (
                    ("light", "default", "lucide/sun", "dark"),
                    ("dark", "slate", "lucide/moon", "light"),
                )
            ],
        },
        "plugins": ["search", "offline"],
        "extra_css": ["assets/site.css"],
        "extra": {"polyfills": ["assets/iframe-worker.js"], "generator": False},
        "markdown_extensions": [
            "admonition",
            "def_list",
            "attr_list",
            "md_in_html",
            "tables",
            {"toc": {"permalink": True}},
            {"pymdownx.highlight": {"anchor_linenums": False}},
            "pymdownx.details",
            "pymdownx.inlinehilite",
            "pymdownx.superfences",
        ],
        "nav": navigation.menu(docs),
    }


if __name__ == "__main__":
    sys.exit(main())
