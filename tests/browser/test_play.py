"""The page at /play: a visitor with the taste of one state is found out, and nothing is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from selenium.webdriver.common.by import By

from latentbandits.models import GaussianArms, LinearGaussian, registry, save
from latentbandits.models.artefacts import Catalogue
from tests.browser.chromium import Browser
from tests.browser.test_overview import get, live
from tests.browser.waiting import until
from tests.processes.service import RunningService
from tests.unit.test_new_models_conform import MODELS


def offered(page: Browser) -> list[str]:
    result: list[str] = page.run(
        "return [...document.querySelectorAll('.offer:not([hidden])')].map(b => b.dataset.action)"
    )
    return result


def take(page: Browser, place: int) -> None:
    number = int(page.text("#round"))
    page.driver.find_element(By.CSS_SELECTOR, f".offer[data-place='{place}']").click()
    until(lambda: page.text("#round") == str(number + 1) or page.text("#notice"))
    assert page.text("#notice") == ""


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


def stored(running: RunningService) -> dict[str, Any]:
    """Everything of the overview that a session, a decision or a reward would change."""
    overview = get(running, "/v1/overview")
    log = get(running, "/v1/log?limit=1")
    names = ("counts", "groups", "states", "series", "recent")
    return {"log": log, **{name: overview[name] for name in names}}


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
        assert len(set(page.text("#next-list").split(", "))) == 3
        assert f"state {state + 1}" in page.text("#belief")
        assert page.texts("#picks tbody td:first-child") == [str(n) for n in range(10, 0, -1)]
        page.driver.find_element(By.ID, "again").click()
        until(lambda: page.text("#round") == "1")


def test_every_family_can_be_played_and_nothing_is_stored(page: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    means = rng.random((2, 5))
    playable = {
        "GaussianArms": GaussianArms(means, 0.5, 0.2),
        "LinearGaussian": LinearGaussian(np.eye(2), noise=0.5),
        **{name: model for name, (model, *_) in MODELS.items()},
    }
    functions = ("FunctionModel", "Particles")
    for name in [n for n, m in playable.items() if type(m).__name__ in functions]:
        del playable[name]  # functions cannot be saved, so they cannot be served
    kinds = {type(model).__name__ for model in playable.values()}
    assert kinds | {"FunctionModel"} == set(registry.kinds())
    folders = {name: f"model{number}" for number, name in enumerate(playable)}
    for name, model in playable.items():
        n_actions = model.n_actions or 5
        features = None if model.n_actions else rng.standard_normal((n_actions, model.n_features))
        ids = [f"item {number}" for number in range(n_actions)]
        save(model, tmp_path / "models" / folders[name], Catalogue(ids, features=features))
    first = tmp_path / "models" / "model0"
    with (
        RunningService(first, "--holdout-share", "0.5", folder=tmp_path) as running,
        running.client(trust_env=False) as http,
    ):
        before = stored(running)
        failed = {}
        for name, folder in folders.items():
            body = {"path": folder, "force": True}
            assert http.post("/v1/models/activate", json=body).status_code == 200, name
            page.open(f"{running.url}/play")
            try:
                live(page)
                for place in (0, 1, 0, 1):
                    take(page, place)
                np.testing.assert_allclose(sum(shown_shares(page)), 1.0, atol=1e-5)
            except AssertionError:
                failed[name] = page.text("#notice")
        assert failed == {}
        after = stored(running)
        after["log"]["end"] = before["log"]["end"]  # activations have positions too
        assert {**after, "states": before["states"]} == before


def test_opening_the_page_and_picking_change_no_statistics(
    page: Browser, played: RunningService
) -> None:
    before = stored(played)
    page.open(f"{played.url}/play")
    live(page)
    page.driver.find_element(By.TAG_NAME, "body").send_keys("2")
    until(lambda: page.text("#round") == "2")
    assert "You took" in page.text("#outcome")
    assert stored(played) == before


def test_play_can_be_turned_off(page: Browser, model_folder: Path, tmp_path: Path) -> None:
    with (
        RunningService(model_folder, "--play", "false", folder=tmp_path) as running,
        running.client(trust_env=False) as http,
    ):
        assert http.get("/play").status_code == 404
        assert http.post("/v1/play", json={"seed": 1}).status_code == 404
        page.open(running.url)
        live(page)
        until(lambda: page.run("return document.querySelectorAll('.to-play').length") == 2)
        assert page.run("return [...document.querySelectorAll('.to-play')].every(e => e.hidden)")


def test_a_model_without_a_catalogue_has_nothing_to_offer(page: Browser, tmp_path: Path) -> None:
    save(LinearGaussian([[1.0, 0.0], [0.0, 2.0]], noise=0.5), tmp_path / "linear")
    with RunningService(tmp_path / "linear", folder=tmp_path) as running:
        page.open(f"{running.url}/play")
        until(lambda: "no catalogue of actions" in page.text("#notice"))
        page.close()
        page.console()  # the browser notes the refusal itself


def test_the_demonstration_can_be_played(page: Browser, demo: RunningService) -> None:
    page.open(f"{demo.url}/play")
    live(page)
    assert len(set(offered(page))) == 4
    for place in (0, 3, 1):
        take(page, place)
    assert page.texts("#unfold .key")[0] == "State 1"
    np.testing.assert_allclose(sum(shown_shares(page)), 1.0, atol=1e-5)
