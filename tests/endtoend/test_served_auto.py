"""Over HTTP: a catalogue of 100,000 actions by id, and `auto` for models of every kind."""

from __future__ import annotations

import logging
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian, save
from latentbandits.models.artefacts import Catalogue, write
from latentbandits.serving import embed

with warnings.catch_warnings():  # about which httpx it would rather have
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

N_ITEMS, FEATURES = 100_000, 20
_ANSWER_BYTES = 1_000


def test_a_hundred_thousand_actions_by_id() -> None:
    """Decide over all, over some ids, and over all but some; features are never sent.

    A decision over the whole catalogue allocates less than 200 MB beside it; the answer names one
    action. A list of more than 1,000 ids is refused by its length.
    """
    rng = np.random.default_rng(3)
    items = rng.normal(size=(N_ITEMS, FEATURES))
    names = [f"item-{i}" for i in range(N_ITEMS)]
    weights = rng.normal(size=(2, FEATURES))
    model = LinearGaussian(weights, 0.5, [0.1 * np.eye(FEATURES)] * 2)
    mean = items @ weights.mean(axis=0)
    best = [names[i] for i in mean.argsort()[::-1][:1_001]]
    app = embed(model, catalogue=Catalogue(names, features=items), policy="mmGreedy")
    with TestClient(app) as http:

        def ask(**fields: Any) -> Any:
            answer = http.post("/v1/decide", json={"session": "ann", **fields})
            assert len(answer.content) < _ANSWER_BYTES
            return answer

        assert ask().json()["action"] == best[0]
        tracemalloc.start()
        decided = ask(exclude=best[:1_000])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200e6
        assert decided.json()["action"] == best[1_000]
        assert ask(actions=[names[0], best[7]]).json()["action"] == best[7]
        assert ask(actions=["gone from the shop"]).status_code == 422
        assert ask(exclude=best).status_code == 422
        both = ask(actions=best[:2], exclude=best[:1])
        assert both.status_code == 422
        told = {"decision_id": decided.json()["decision_id"], "value": 0.5}
        assert http.post("/v1/reward", json=told).json()["status"] == "applied"


def test_a_model_activated_over_http_is_tuned_by_another_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A safe arm and one that is better in one state of two: the policy of auto is the tuned one.

    It is kept in the store: activated again, or loaded by a restart, the model has the same. A
    model whose notes name a policy has that one.
    """
    caplog.set_level(logging.INFO, "latentbandits")
    save(GaussianArms([[0.9, 0.5], [0.1, 0.5]], 0.5, 0.1), tmp_path / "first")
    save(GaussianArms([[0.8, 0.2], [0.1, 0.5]], 0.5, 0.1), tmp_path / "second")
    advice = {"recommended_policy": "mIDS"}
    (tmp_path / "third").mkdir()
    write(GaussianArms([[0.7, 0.2], [0.1, 0.5]], 0.5, 0.1), tmp_path / "third", notes=advice)
    store = f"sqlite:{tmp_path / 's.sqlite'}"
    with TestClient(
        embed(tmp_path / "first", store, authenticated=True, request_timeout=60.0)
    ) as http:
        assert policy_of(http, "ann") == "mmTS"  # an embedded model is not tuned, and says so
        answer = http.post("/v1/models/activate", json={"path": "second"})
        assert answer.status_code == 200, answer.text
        tuned = policy_of(http, "bob")
        assert "has no recommended policy; tuned: " + tuned in caplog.text
        assert f"(second): policy {tuned}" in caplog.text
        http.post("/v1/models/activate", json={"path": "third"})
        assert policy_of(http, "eve") == "mIDS"
    with TestClient(embed(None, store, authenticated=True, models=str(tmp_path))) as http:
        caplog.clear()
        http.post("/v1/models/activate", json={"path": "second"})
        assert policy_of(http, "dan") == tuned
        assert "tuned:" not in caplog.text


def policy_of(http: Any, session: str) -> str:
    answer = http.post("/v1/decide", json={"session": session})
    assert answer.status_code == 201, answer.text
    shown: str = http.get(f"/v1/sessions/{session}").json()["policy"]
    return shown


def test_a_tuning_that_fails_leaves_the_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without time for it the model is active with mmTS, and the log says why."""
    save(GaussianArms([[0.9, 0.5], [0.1, 0.5]], 0.5, 0.1), tmp_path / "first")
    save(GaussianArms([[0.8, 0.2], [0.1, 0.5]], 0.5, 0.1), tmp_path / "second")
    with TestClient(embed(tmp_path / "first", authenticated=True, request_timeout=0.25)) as http:
        assert http.post("/v1/models/activate", json={"path": "second"}).status_code == 200
        assert policy_of(http, "bob") == "mmTS"
    assert "none was tuned (it took more than 0.2 s): auto is mmTS" in caplog.text
