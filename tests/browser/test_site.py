"""The built site opens from a file in a real browser: it searches and asks no other host."""

import subprocess
import sys
import time

import pytest
from tools.site.stage import ROOT

from tests.browser.waiting import until

_HOST = "[...document.querySelectorAll('*')].find(e => e.shadowRoot?.querySelector('input'))"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it."""
    out = tmp_path_factory.mktemp("built") / "site"
    subprocess.run([sys.executable, "-m", "tools.site", "--out", str(out)], cwd=ROOT, check=True)
    return out


@pytest.mark.slow
def test_the_search_works_from_a_file(page, site):
    page.open((site / "concepts" / "glossary.html").as_uri(), 1200)
    page.run("document.querySelector('.md-search__button').click()")
    until(lambda: page.run(f"return Boolean({_HOST})"))
    box = page.driver.execute_script(f"return {_HOST}.shadowRoot.querySelector('input')")
    word = "propensity"
    for typed, key in enumerate(word, 1):  # as people type: each key finds the others still there
        box.send_keys(key)
        time.sleep(0.1)
        assert page.run("return arguments[0].value", box) == word[:typed]
    until(lambda: "results" in page.run(f"return {_HOST}.shadowRoot.textContent"))
    assert page.run("return arguments[0].value", box) == word
    request = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [address for address in request if not address.startswith(("file:", "data:"))] == []
