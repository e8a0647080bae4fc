"""User attributes, features by name and changing catalogues over HTTP."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian, save
from latentbandits.client import Client, ServiceError
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.columns import Category, Encoder, Number
from latentbandits.models.attributes.parts import Gate, with_parts
from tests.processes.service import RunningService

GATE = Gate(
    Encoder((Category("country", ("AT", "DE"), (0.5, 0.5)),)),
    np.array([[0.0, 3.0], [0.0, -3.0]]),
    (),
)
ARMS = with_parts(GaussianArms([[0.9, 0.1], [0.2, 0.8]], 0.5, 0.1), gate=GATE)
ROWS = with_parts(
    LinearGaussian([[1.0, 2.0], [0.0, -1.0]], 0.5, [0.1 * np.eye(2)] * 2),
    encoder=Encoder((Number("price", 5.0, 2.0),), intercept=True),
)


def refused(status: int, text: str) -> pytest.RaisesExc:
    return pytest.raises(ServiceError, match=f"{status} .*{text}")


def test_attributes_and_a_catalogue_that_changes(tmp_path: Path) -> None:
    save(ARMS, tmp_path / "model", Catalogue(["red", "blue"]))
    store = ("--store", f"sqlite:{tmp_path / 's.sqlite'}", "--policy", "mmTS")
    service = RunningService(tmp_path / "model", *store, folder=tmp_path)
    with service, Client(service.url) as client:
        first = client.decide("ann", user_features={"country": "DE"})
        assert first.state_probabilities == pytest.approx(
            np.exp(GATE.log_prior([{"country": "DE"}], ARMS.log_state_prior))[0].tolist()
        )
        with refused(409, "hold for the whole session"):
            client.decide("ann", user_features={"country": "AT"})
        with refused(422, "did you mean 'country'"):
            client.decide("bob", user_features={"contry": "AT"})
        assert client.log().decisions[0].user_features == {"country": "DE"}
        changed = client.add_action("green", name="Green", vector=[0.3, 0.4])
        assert (changed.actions, changed.n_actions) == (["green"], 3)
        assert client.decide("ann", ["green"]).action == "green"
        with refused(422, "an action 'red' already"):
            client.add_action("red")
        with refused(422, "fit --item-features"):
            client.add_action("pink", attributes={"genre": "jazz"})
        assert client.retire_action("red", request_id="once").n_actions == 2
        assert client.retire_action("red", request_id="once").n_actions == 2
        with refused(404, "red"):
            client.retire_action("red")
        os.kill(service.pid, signal.SIGHUP)  # there are no keys to read again
        assert client.decide("ann").round == 3
        client.add_action("deep/red shoes", vector=[0.3, 0.4])
        assert client.retire_action("deep/red shoes").n_actions == 2
        with refused(422, "'red' was retired"):
            client.decide("ann", ["red"])
    again = RunningService(*store, folder=tmp_path)
    with again, Client(again.url) as client:
        assert client.session("ann").user_features == {"country": "DE"}
        assert {client.decide(f"u{i}").action for i in range(20)} == {"blue", "green"}


def test_features_by_name(tmp_path: Path) -> None:
    save(ROWS, tmp_path / "model", Catalogue(["a", "b"]))
    options = ("--store", "memory", "--policy", "mmTS")
    service = RunningService(tmp_path / "model", *options, folder=tmp_path)
    with service, Client(service.url) as client:
        assert client.decide("ann", features=[{"price": 3}, {"price": 7}]).index in (0, 1)
        assert client.decide("ann", ["a", "b"], {"price": 3}).action in ("a", "b")
        assert client.decide("ann", features=[[1.0, 0.5]]).index == 0
        with refused(422, "did you mean 'price'"):
            client.decide("ann", features=[{"prize": 3}])
        with refused(422, "has 3 numbers; this model takes 2"):
            client.decide("ann", features=[[1.0, 0.5, 2.0]])


@pytest.mark.slow
def test_processes_of_one_store_see_an_action_that_one_of_them_added(
    tmp_path: Path, postgresql_url: str
) -> None:
    save(ARMS, tmp_path / "model", Catalogue(["red", "blue"]))
    options = ("--store", postgresql_url, "--policy", "mmTS")
    one, other = (RunningService(tmp_path / "model", *options, folder=tmp_path) for _ in range(2))
    with one, other, Client(one.url) as first, Client(other.url) as second:
        second.decide("ann")
        first.add_action("green", vector=[0.3, 0.4])
        assert second.decide("ann", ["green"]).action == "green"
        assert second.decide("new", ["green"]).action == "green"
        second.retire_action("red")
        with refused(422, "'red' was retired"):
            first.decide("ann", ["red"])
        assert {first.decide(f"u{i}").action for i in range(10)} <= {"blue", "green"}
