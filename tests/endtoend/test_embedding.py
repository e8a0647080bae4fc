"""The service mounted in another app: the example of the docs, with FastAPI and Starlette."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from latentbandits import BernoulliArms, GaussianArms, save
from latentbandits.serving import embed
from tests.faults.load import arms

with warnings.catch_warnings():  # about which httpx it would rather have
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "inside-your-own-app.md"


def example() -> str:
    actual = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert actual is not None
    return actual[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(arms(0), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def use(app: Any, base: str = "/bandit") -> int:
    """Decide, reward and look, with the app's lifespan; the number of rewards seen."""
    with TestClient(app) as http:
        decided = http.post(f"{base}/v1/decide", json={"session": "ann"})
        assert decided.status_code == 201, decided.text
        told = {"decision_id": decided.json()["decision_id"], "value": 0.5}
        assert http.post(f"{base}/v1/reward", json=told).json()["status"] == "applied"
        assert http.get(f"{base}/readyz").status_code == 200
        page = http.get(f"{base}/")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        session: dict[str, Any] = http.get(f"{base}/v1/sessions/ann").json()
        assert http.get(f"{base}/v1/log").json()["decisions"]
        rewards: int = session["rewards"]
        return rewards


def test_the_example_of_the_docs(folder: Path) -> None:
    pytest.importorskip("fastapi")
    for expected in (1, 2):  # the store outlives the app
        names: dict[str, Any] = {}
        exec(example(), names)
        assert use(names["app"]) == expected


def test_starlette(folder: Path) -> None:
    bandit = embed(arms(0), store="sqlite:s.sqlite")
    app = Starlette(lifespan=bandit.lifespan)
    app.mount("/bandit", bandit)
    assert use(app) == 1
    assert use(embed(None, store="sqlite:s.sqlite"), base="") == 2


def test_an_outer_app_without_lifespan(folder: Path) -> None:
    for store in ("memory", "sqlite:lazy.sqlite"):
        app = Starlette()
        app.mount("/bandit", embed(arms(0), store=store))
        http = TestClient(app)  # each request in an event loop of its own
        for number in range(1, 4):
            decided = http.post("/bandit/v1/decide", json={"session": "ann"})
            assert decided.json()["round"] == number


def test_what_cannot_be_embedded_says_why(folder: Path) -> None:
    for arguments, why in (
        ({"model": "nowhere"}, "is not a saved model"),
        ({}, "no model is active"),
        ({"model": arms(0), "store": "redis://x"}, "is not a store"),
        ({"model": arms(0), "nonsense": 1}, "nonsense"),
        ({"model": arms(0), "policy": "LinTS"}, "LinTS"),
        ({"model": GaussianArms([[[0.1, 0.2]], [[0.3, 0.4]]], noise=1.0)}, "one instance for each"),
    ):
        with pytest.raises(ValueError, match=why):
            embed(**arguments)  # type: ignore[arg-type]
    embed(arms(0), store="sqlite:again.sqlite").service.engine.store.close()
    embed(arms(0), store="sqlite:again.sqlite").service.engine.store.close()


def test_the_model_of_a_store_gets_the_click_model_of_the_settings(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'log.sqlite'}"
    model = BernoulliArms.from_means([[0.9, 0.1], [0.2, 0.8]], 0.1)
    embed(model, store).service.engine.store.close()
    for click_model in ("cascade", "each"):
        engine = embed(None, store, click_model=click_model).service.engine
        assert engine.library.active.click_model == click_model
        engine.store.close()
