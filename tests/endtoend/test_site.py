"""The documentation site: nothing is left out of the reference, and every link leads somewhere.

`make docs` builds the site, which `make test` does first. Here its parts are tried, each with a
planted fault that it must find.
"""

import argparse
import re
import tomllib
from pathlib import Path

import pytest
from evidence import EXPERIMENTS
from tools.site import formulas, links, navigation, omissions
from tools.site.reference import command_line, docstrings
from tools.site.stage import ROOT, relinked, stage

from latentbandits.experiments import installed
from latentbandits.serving.http import endpoints

PAGES = [ROOT / "README.md", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """The staged pages."""
    folder = tmp_path_factory.mktemp("site") / "docs"
    stage(folder)
    return folder


@pytest.fixture(scope="module")
def needs():
    """Everything that the reference must have."""
    return list(omissions.required())


def test_nothing_is_left_out_of_the_reference(docs):
    assert omissions.missing(docs / "reference") == []


@pytest.mark.parametrize(
    ("page", "entry", "named"),
    [
        ("policies", "### `mmTS`", "policy mmTS"),
        ("models", "### `PoissonArms`", "model PoissonArms"),
        ("simulate", "### `simulate`", "public name latentbandits.simulate"),
        ("learning", "### `read_log`", "public name latentbandits.learning.read_log"),
        ("command-line", "| `--bootstrap B` |", "option --bootstrap B of fit"),
        ("settings", "| `drain` |", "setting drain"),
        ("http-api", "## `PUT /v1/reward`", "endpoint PUT /v1/reward"),
        ("metrics", "| `latentbandits_waiting` |", "metric latentbandits_waiting"),
        ("errors", "| `LogError` |", "error LogError"),
    ],
)
def test_an_entry_that_is_missing_is_found(docs, needs, page, entry, named):
    texts = {path.stem: path.read_text() for path in (docs / "reference").glob("*.md")}
    assert omissions.without_entry(texts, needs) == []
    assert entry in texts[page]
    texts[page] = texts[page].replace(entry, "")
    actual = omissions.without_entry(texts, needs)
    assert actual
    assert any(line.startswith(f"{named} has no entry") for line in actual)


def test_a_new_endpoint_without_an_example_is_found(docs, monkeypatch):
    def put_away(call): ...

    new = endpoints.ENDPOINTS[0]._replace(path="/v1/away", handle=put_away)
    monkeypatch.setattr(omissions, "ENDPOINTS", (*endpoints.ENDPOINTS, new))
    actual = omissions.missing(docs / "reference")
    assert "endpoint POST /v1/away has no example" in actual
    assert any(line.startswith("endpoint POST /v1/away has no entry") for line in actual)


def test_a_new_option_without_help_is_found(docs, monkeypatch):
    parser = argparse.ArgumentParser(prog="latentbandits fly")
    parser.add_argument("--high")
    monkeypatch.setattr(command_line, "commands", lambda: iter([("fly", parser)]))
    actual = omissions.missing(docs / "reference")
    assert "option --high HIGH of fly has no help" in actual


def test_every_page_is_in_the_menu_once(docs):
    listed = [page for pages in navigation.sections(docs).values() for page in pages]
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"index.md"}
    assert sorted(listed) == sorted(there)


def test_pages_that_the_menu_names_exist(docs):
    named = {page for pages in navigation.SECTIONS.values() for page in pages}
    assert sorted(page for page in named if not (docs / page).is_file()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_short(page):
    """A how-to answers one question; the reference and the changelog may be longer than a page."""
    place = page.relative_to(ROOT)
    if place.parts[:2] == ("docs", "reference") or place.name == "CHANGELOG.md":
        return
    most = 700 if place.parts[:2] == ("docs", "how-to") else 1500
    assert len(page.read_text().split()) <= most


def test_every_extra_is_in_the_page_about_installing():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    for extra in project["optional-dependencies"]:
        assert re.search(rf"\[(\w+,)*{extra}[\],]", page), extra


def test_every_experiment_is_listed():
    page = (ROOT / "docs" / "evidence" / "experiments.md").read_text()
    for experiment in (*installed(), *EXPERIMENTS):
        assert f"| `{experiment.name}` |" in page, experiment.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_files_of_the_repository_lead_somewhere(page):
    """Readers of the repository follow them without building the site."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for actual in LINK.findall(text):
        address = actual[0] or actual[1]
        if "://" in address or address.startswith(("#", "mailto:")):
            continue
        assert (page.parent / address.partition("#")[0]).exists(), address


def test_links_are_rewritten_for_the_site(tmp_path):
    code = "\n```\n[d](no.md)\n```\n"
    text = f"[a](../DESIGN.md) [b](../src/x.py) [c](reference/index.md#settings){code}"
    page, out = tmp_path / "page.md", tmp_path
    assert relinked(text, ROOT / "docs" / "page.md", page, out, ROOT) == (
        f"[a](project/design.md) b (`src/x.py`) [c](reference/settings.md){code}"
    )


def test_formulas_are_drawn_by_the_browser(docs):
    for page in docs.rglob("*.md"):
        assert "```math" not in page.read_text(), page
        assert "$`" not in page.read_text(), page
    assert '<math display="block">' in (docs / "concepts" / "the-mathematics.md").read_text()
    code = "```sh\necho $`date`$\n```"
    assert formulas.block(code) == code
    with pytest.raises(ValueError, match=r"does not know \\nothing in the formula \\nothing"):
        formulas.inline("an unknown command $`\\nothing`$")


def test_faults_of_a_built_site_are_found(tmp_path):
    (tmp_path / "other.html").write_text("<h1 id=there>there</h1>")
    (tmp_path / "index.html").write_text(
        "<a href='other.html#there'></a><a href='other.html#gone'></a><a href='gone.html'></a>"
        "<img src='gone.png'><script src='https://elsewhere.example/x.js'></script>"
    )
    assert links.problems(tmp_path) == [
        "index.html loads gone.png, which is not there",
        "index.html loads https://elsewhere.example/x.js",
        "index.html links to other.html#gone, which has no such heading",
        "index.html links to gone.html, which is not there",
    ]


def test_docstrings_become_markdown():
    shown = docstrings.markdown(
        "Return a_b.\n\nArgs:\n    x: the\n        first.\n\n    y = a * x\n\n>>> 1\n1"
    )
    assert shown == (
        "Return a\\_b.\n\n| args | |\n|---|---|\n| `x` | the first. |\n\n"
        "```text\ny = a * x\n```\n\n```pycon\n>>> 1\n1\n```"
    )


def test_make_test_all_builds_the_site():
    text = (ROOT / "Makefile").read_text()
    needs = text.split("\ntest-all:")[1].split("##")[0].split()
    assert "docs" in needs
    assert Path(ROOT / "tools/site/__main__.py").is_file()
