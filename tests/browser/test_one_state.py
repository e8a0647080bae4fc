"""The page of a model with one state says so, everywhere."""

from __future__ import annotations

from pathlib import Path

from latentbandits.models import GaussianArms, save
from latentbandits.models.artefacts import Catalogue
from tests.browser.chromium import Browser
from tests.browser.conftest import play_sessions
from tests.browser.waiting import until
from tests.processes.service import RunningService


def test_one_state_is_all_users(page: Browser, tmp_path: Path) -> None:
    model = GaussianArms([[1.0, 2.0, 1.5, 0.5, 0.2, 0.9]], noise=0.5, spread=0.3)
    save(model, tmp_path / "one", Catalogue(list("abcdef")))
    with RunningService(tmp_path / "one", folder=tmp_path) as running:
        play_sessions(running, n_sessions=3, n_rounds=2)
        page.open(running.url)
        until(lambda: page.text("#status") == "Live")
        until(lambda: page.texts(".state-bars .share"))
        assert page.texts(".state-bars .share") == ["100%"]
        assert "one state" in page.text("#tile-half-note")
        page.open(f"{running.url}/play")
        until(lambda: "one state" in page.run("return document.body.innerText"))
        assert "keeps no belief" not in page.run("return document.body.innerText")
