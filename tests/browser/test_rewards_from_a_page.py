"""A page of another origin reports rewards with the TypeScript client, also while it is left."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.browser.chromium import Browser
from tests.endtoend.test_reward_tokens import Shop
from tests.endtoend.test_typescript import package, run

__all__ = ["package"]  # a fixture

PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>shop</title>
<script type="module">
import { Client, sendReward } from "./latentbandits.min.js";
window.reward = async (url, id, token) => {
  const answer = await fetch(`${url}/v1/reward`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ decision_id: id, value: 0.5, token }),
  });
  return (await answer.json()).status;
};
window.leave = (url, id, token) => {
  addEventListener("pagehide", () => sendReward(url, id, token, 0.5));
  location.href = "about:blank";
};
document.title = typeof Client;
</script>"""


@pytest.fixture
def page_address(package: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a page with the client's bundle, on an origin of its own."""
    run("npm", "run", "build", folder=package)
    run("npm", "run", "size", folder=package)
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE)
    bundle = (package / "out" / "latentbandits.min.js").read_bytes()
    (folder / "latentbandits.min.js").write_bytes(bundle)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def open_shop(page: Browser, address: str) -> None:
    """Open the page and wait until its script has run."""
    page.open(address)
    deadline = time.monotonic() + 20
    while page.run("return document.title") != "function":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_page_that_is_allowed_reads_the_answer(
    page: Browser, page_address: str, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, origins=page_address)
    with shop.service:
        decided = shop.decide("stays")
        open_shop(page, page_address)
        told = page.run(
            "return await window.reward(...arguments)",
            *(shop.service.url, decided.decision_id, decided.reward_token),
        )
    assert told == "applied"


def test_a_beacon_of_a_page_that_is_left_needs_no_preflight(
    page: Browser, page_address: str, tmp_path: Path
) -> None:
    """The page's origin is not allowed, so a request that asks first (JSON) never arrives."""
    shop = Shop(tmp_path)
    with shop.service:
        asked, told = shop.decide("asks"), shop.decide("leaves")
        open_shop(page, page_address)
        refused = page.run(
            "return await window.reward(...arguments).catch((error) => error.name)",
            *(shop.service.url, asked.decision_id, asked.reward_token),
        )
        assert refused == "TypeError"
        assert any("preflight" in complaint for complaint in page.console())
        page.run(
            "window.leave(...arguments)", shop.service.url, told.decision_id, told.reward_token
        )
        deadline = time.monotonic() + 20
        while shop.rewards("leaves") == 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert shop.rewards("asks") == 0
