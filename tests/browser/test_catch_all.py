"""A group whose policy has `catch_all` knows one state more than the model: "None of these"."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from latentbandits.models import GaussianArms, save
from latentbandits.models.artefacts import Catalogue
from tests.browser.chromium import Browser
from tests.browser.conftest import play_sessions
from tests.browser.test_overview import get, live
from tests.browser.test_play import take
from tests.browser.waiting import until
from tests.processes.service import RunningService


def test_the_pages_show_the_state_none_of_these(page: Browser, tmp_path: Path) -> None:
    model = GaussianArms([[1.0, 2.0, 1.5, 0.5], [2.0, 1.0, 0.5, 1.5]], noise=0.5, spread=0.3)
    save(model, tmp_path / "two", Catalogue(list("abcd")))
    groups = ("--policy", "mmTS(catch_all=True)", "--group", "plain=mmTS:0.5")
    with RunningService(tmp_path / "two", *groups, folder=tmp_path) as running:
        play_sessions(running, n_sessions=20, n_rounds=3)
        overview = get(running, "/v1/overview")
        assert {one["group"] for one in overview["groups"] if one["sessions"]} == {
            "policy",
            "plain",
        }
        names = [state["name"] for state in overview["states"]]
        assert names == ["State 1", "State 2", "None of these"]
        for part in ("share", "prior"):
            np.testing.assert_allclose(sum(state[part] for state in overview["states"]), 1.0)
        earned = get(running, "/v1/actions")
        assert earned["states"] == names
        page.open(running.url)
        live(page)
        until(lambda: len(page.texts(".state-bars .share")) == 3)
        page.open(f"{running.url}/play")
        live(page)
        take(page, 0)
        assert page.texts("#bars .state-name") == names
