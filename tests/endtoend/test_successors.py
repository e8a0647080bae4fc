"""Models with other actions take over on a real service that is killed and started again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian, save
from latentbandits.client import Client
from latentbandits.client_protocol import ServiceError
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.artefacts import Catalogue
from tests.processes.service import RunningService

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(4)


def play(client: Client, session: str, rounds: int, actions: list[str]) -> list[Any]:
    answers = []
    for i in range(rounds):
        answers.append(client.decide(session, actions=actions))
        client.reward(answers[-1].decision_id, float(i % 2))
    return answers


def seen(client: Client) -> dict[str, tuple[float, ...]]:
    return {name: tuple(client.session(name).state_probabilities) for name in ("ann", "bob", "eve")}


def killed(service: RunningService, client: Client) -> None:
    before = seen(client)
    service.kill()
    service.start()
    after = seen(client)
    for name, probabilities in before.items():
        np.testing.assert_allclose(after[name], probabilities, atol=1e-12)


def test_actions_that_a_successor_lacks_over_http(tmp_path: Path) -> None:
    models = tmp_path / "models"
    save(BernoulliArms.random(RNG, 3, 4), models / "clicks", Catalogue(["a", "b", "c", "d"]))
    save(GaussianArms(RNG.random((2, 2)), 0.5, 0.2), models / "arms", Catalogue(["c", "e"]))
    linear = LinearGaussian(RNG.normal(size=(4, 3)), 0.4, np.stack([0.1 * np.eye(3)] * 4))
    items = Catalogue(["b", "e", "f"], features=RNG.normal(size=(3, 3)))
    save(linear, models / "linear", items)
    save(LinearGaussian(RNG.normal(size=(2, 2)), 0.4), models / "features")
    store = ("--store", f"sqlite:{tmp_path / 'store.sqlite'}", "--snapshot-rounds", "4")
    with (
        RunningService(models / "clicks", *store, "--models", models, folder=tmp_path) as service,
        Client(service.url, timeout=20.0) as client,
    ):
        play(client, "ann", 6, ["a", "b", "c", "d"])
        play(client, "bob", 6, ["c"])
        play(client, "eve", 3, ["a"])
        first = client.models().active
        client.activate(path="arms", mode="migrated")
        killed(service, client)
        chosen = play(client, "ann", 12, ["a", "c", "e"])
        assert {one.fallback for one in chosen if one.action == "a"} <= {True}
        assert not any(one.fallback for one in chosen if one.action != "a")
        assert play(client, "bob", 3, ["a"])[0].fallback
        assert client.decide("eve").action in ("c", "e")
        killed(service, client)
        client.activate(path="linear", mode="migrated")
        assert all(one.fallback for one in play(client, "ann", 6, ["a", "c", "d"]))
        killed(service, client)
        with pytest.raises(ServiceError, match="no catalogue"):
            client.activate(path="features", mode="migrated")
        client.activate(model=first, mode="migrated")  # the way back
        killed(service, client)
        back = play(client, "ann", 8, ["e", "f", "a"])
        assert all(one.fallback == (one.action in "ef") for one in back)
        with pytest.raises(ServiceError, match="no action 'never'"):
            client.decide("ann", actions=["never"])
        killed(service, client)
        logged = {entry.decision_id: entry for entry in client.entries()}
        for one in (*chosen, *back):
            entry = logged[one.decision_id]
            assert (entry.fallback, entry.action) == (one.fallback, one.action)
            assert entry.propensity == one.propensity
