"""The page at /play: a visitor with the taste of one state is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from selenium.webdriver.common.by import By

from latentbandits.models import LinearGaussian, save
from tests.browser.chromium import Browser
from tests.browser.test_overview import get, live
from tests.browser.waiting import until
from tests.processes.service import RunningService


def offered(page: Browser) -> list[str]:
    result: list[str] = page.run(
        "return [...document.querySelectorAll('.offer:not([hidden])')].map(b => b.dataset.action)"
    )
    return result


def take(page: Browser, place: int) -> None:
    number = int(page.text("#round"))
    page.driver.find_element(By.CSS_SELECTOR, f".offer[data-place='{place}']").click()
    until(lambda: page.text("#round") == str(number + 1))


def play(page: Browser, expected: dict[str, list[float]], state: int, rounds: int) -> None:
    """Always take what someone in `state` likes best."""
    for _ in range(rounds):
        values = [expected[action][state] for action in offered(page)]
        take(page, int(np.argmax(values)))


def catalogue(running: RunningService) -> dict[str, list[float]]:
    return {one["action"]: one["expected"] for one in get(running, "/v1/catalogue")["items"]}


def shown_shares(page: Browser) -> list[float]:
    widths: list[str] = page.run(
        "return [...document.querySelectorAll('#bars .bar')].map(bar => bar.style.width)"
    )
    return [float(width.rstrip("%")) / 100 for width in widths]


def session_of(page: Browser, running: RunningService) -> Any:
    name = page.text("#footer-note").split("the session ")[1].split(" ")[0]
    return get(running, f"/v1/sessions/{name}")


def test_ten_consistent_rounds_end_with_that_state_on_top(
    page: Browser, playground: RunningService
) -> None:
    expected = catalogue(playground)
    page.open(f"{playground.url}/play")
    for state in range(3):
        live(page)
        until(lambda: page.text("#round") == "1")
        assert page.text("#belief").startswith("Nothing is known of you yet")
        play(page, expected, state, rounds=10)
        shares = shown_shares(page)
        assert int(np.argmax(shares)) == state
        assert f"state {state + 1}" in page.text("#belief")
        assert page.texts("#picks tbody td:first-child") == [str(n) for n in range(10, 0, -1)]
        np.testing.assert_allclose(
            shares, session_of(page, playground)["state_probabilities"], atol=1e-5
        )
        page.driver.find_element(By.ID, "again").click()
        until(lambda: page.text("#round") == "1")


def test_each_pick_is_told_to_the_service(page: Browser, playground: RunningService) -> None:
    page.open(f"{playground.url}/play")
    live(page)
    expected = catalogue(playground)
    shelf = offered(page)
    page.driver.find_element(By.TAG_NAME, "body").send_keys("2")
    until(lambda: page.text("#round") == "2")
    history = [one for one in session_of(page, playground)["history"] if one["reward"] is not None]
    missed = [max(expected[a][s] for a in shelf) - expected[shelf[1]][s] for s in range(3)]
    alike = [s for s in range(3) if missed[s] == min(missed)]
    worth = {action: np.mean([expected[action][s] for s in alike]) for action in shelf}
    assert shelf[1] in [one["action"] for one in history]
    assert len(history) <= 2  # and what the service had guessed, if that was another
    for one in history:
        np.testing.assert_allclose(one["reward"], worth[one["action"]])
    assert "You took" in page.text("#outcome")


def test_a_model_without_a_catalogue_has_nothing_to_offer(page: Browser, tmp_path: Path) -> None:
    save(LinearGaussian([[1.0, 0.0], [0.0, 2.0]], noise=0.5), tmp_path / "linear")
    with RunningService(tmp_path / "linear", folder=tmp_path) as running:
        page.open(f"{running.url}/play")
        until(lambda: "no catalogue of actions" in page.text("#notice"))
        page.close()


def test_the_demonstration_can_be_played(page: Browser, demo: RunningService) -> None:
    page.open(f"{demo.url}/play")
    live(page)
    assert len(set(offered(page))) == 4
    for place in (0, 3, 1):
        take(page, place)
    assert page.texts("#unfold .key")[0] == "State 1"
    np.testing.assert_allclose(sum(shown_shares(page)), 1.0, atol=1e-5)
