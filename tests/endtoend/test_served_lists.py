"""Lists over HTTP: with both clients, in batches, by token, in the metrics and on the page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from latentbandits import BernoulliArms, save
from latentbandits.client import AsyncClient, Client, ServiceError
from latentbandits.models.artefacts import Catalogue
from tests.processes.service import RunningService

RATES = np.array([[0.6, 0.2, 0.1, 0.3], [0.1, 0.5, 0.3, 0.2]])
CLICKS = BernoulliArms(20 * RATES, 20 * (1 - RATES))
DRINKS = Catalogue(["tea", "mate", "cocoa", "water"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("lists")
    save(CLICKS, folder / "model", catalogue=DRINKS)
    words = ("--policy", "mmTS", "--click-model", "cascade", "--reward-origins", "*")
    store = f"sqlite:{folder / 'store.sqlite'}"
    with RunningService(folder / "model", "--store", store, *words, folder=folder) as service:
        yield service


@pytest.fixture
def client(running: RunningService) -> Iterator[Client]:
    with Client(running.url, timeout=10) as client:
        yield client


def test_the_client_asks_for_a_list_and_tells_the_click(client: Client) -> None:
    shown = client.decide("ann", length=3)
    assert len(set(shown.shown)) == 3
    assert set(shown.shown) <= set(DRINKS.ids)
    assert shown.click_model == "cascade"
    assert client.reward(shown.decision_id, clicked=shown.shown[1]).status == "applied"
    assert client.reward(shown.decision_id, clicked=shown.shown[1]).status == "duplicate"
    assert client.correct(shown.decision_id, clicked=None).status == "applied"
    assert [event.reward for event in client.session("ann").history] == [0.0, 0.0, 0.0]
    assert client.session("ann").mean_reward == 0.0


def test_the_other_client_and_values(running: RunningService) -> None:
    async def visit() -> Any:
        async with AsyncClient(running.url, timeout=10) as client:
            shown = await client.decide("bob", ["tea", "mate"], length=2)
            await client.reward(shown.decision_id, values={shown.shown[0]: 0})
            await client.reward(shown.decision_id, values={shown.shown[1]: 1})
            return await client.session("bob")

    assert [event.reward for event in asyncio.run(visit()).history] == [0.0, 1.0]


def test_batches_of_lists(client: Client) -> None:
    requests = [{"session": f"many {i}", "length": 1 + i % 5} for i in range(10)]
    answers = client.decide_many(requests)
    for i, answer in enumerate(answers):
        if i % 5 == 4:  # the model has four actions
            assert isinstance(answer, ServiceError)
            assert "length 5 is more than the 4 actions" in answer.message
    lists = [one for one in answers if not isinstance(one, ServiceError)]
    rewards = [{"decision_id": one.decision_id, "clicked": one.action} for one in lists]
    told = client.reward_many([*rewards, {"decision_id": lists[0].decision_id, "value": 1}])
    assert [one.status for one in told[:-1]] == ["applied"] * 8
    assert isinstance(told[-1], ServiceError)
    assert "is a list" in told[-1].message


def test_a_page_tells_the_click_with_a_token(running: RunningService, client: Client) -> None:
    shown = client.decide("page", length=2, reward_token=True)
    body = {
        "decision_id": shown.decision_id, "clicked": shown.action, "token": shown.reward_token,
    }  # fmt: skip
    with httpx.Client(base_url=running.url) as http:
        told = http.post("/v1/reward", json=body, headers={"content-type": "text/plain"})
    assert told.json()["status"] == "applied"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("decide", {"length": 0}, "Expected `int` >= 1 - at `$.length`"),
        ("decide", {"length": 101}, "Expected `int` <= 100 - at `$.length`"),
        ("decide", {"length": "3"}, "Expected `int | null`, got `str` - at `$.length`"),
        ("decide", {"length": 5}, "length 5 is more than the 4 actions that are eligible"),
        ("reward", {"clicked": "coffee"}, "'coffee' is not in the list"),
        ("reward", {"clicked": ["tea", "mate"]}, "Expected `str | null`, got `array`"),
        ("reward", {"value": 1, "clicked": "tea"}, "is a list"),
        ("reward", {"value": None}, "Expected `float`, got `null` - at `$.value`"),
        ("reward", {"values": {}}, "length >= 1"),
        ("reward", {}, "is a list"),
    ],
)
def test_refusals(running: RunningService, path: str, body: Any, message: str) -> None:
    with httpx.Client(base_url=running.url) as http:
        asked = {"session": "eve", **(body if path == "decide" else {"length": 2})}
        answer = http.post("/v1/decide", json=asked)
        if path == "reward":
            told = {"decision_id": answer.json()["decision_id"], **body}
            answer = http.post("/v1/reward", json=told)
    assert answer.status_code == 422
    assert message in answer.json()["error"]["message"]


def test_an_activation_may_name_its_click_model(running: RunningService, client: Client) -> None:
    model = client.models().active
    for refused, message in (("positions(1, 0.5)", "cannot learn where"), ("none", "unknown")):
        with pytest.raises(ServiceError, match=message):
            client.activate(model=model, click_model=refused)
    client.activate(model=model, click_model="each")
    shown = client.decide("each", length=2)
    assert shown.click_model == "each"
    with pytest.raises(ServiceError, match="`clicked` is for the click model cascade"):
        client.reward(shown.decision_id, clicked=shown.action)
    client.add_action("milk")  # the catalogue changes, the click model stays
    assert client.decide("each", length=5).click_model == "each"
    client.activate(model=model, click_model="cascade", force=True)


def test_metrics_count_lists_and_clicks_by_position(
    running: RunningService, client: Client
) -> None:
    def counts() -> dict[str, dict[str, float]]:
        text = httpx.get(f"{running.url}/metrics").text
        return {
            family.name: {one.labels.get("position", ""): one.value for one in family.samples}
            for family in text_string_to_metric_families(text)
            if family.name.startswith("latentbandits_list")
        }

    before = counts()
    for name, clicked in (("m1", 0), ("m2", 2), ("m3", 2)):
        shown = client.decide(name, length=3)
        client.reward(shown.decision_id, clicked=shown.shown[clicked])
    after = counts()

    def more(name: str, position: str) -> float:
        return after[name][position] - before[name].get(position, 0.0)

    assert more("latentbandits_lists", "") == 3
    assert [more("latentbandits_list_positions", place) for place in "123"] == [3, 3, 3]
    assert [more("latentbandits_list_clicks", place) for place in "13"] == [1, 2]


def test_the_game_says_what_list_it_would_show(running: RunningService) -> None:
    with httpx.Client(base_url=running.url) as http:
        games = [
            http.post("/v1/play", json={"seed": 1, "picks": picks}).json()["next_list"]
            for picks in ([], [], [0, 0, 0])
        ]
    assert games[0] == games[1]
    assert all(len(set(shown)) == 3 for shown in games)


def test_the_log_of_the_service_has_positions(client: Client) -> None:
    shown = client.decide("log", length=2)
    client.reward(shown.decision_id, clicked=shown.shown[0])
    entries = [entry for entry in client.entries() if entry.session == "log"]
    assert [entry.list_position for entry in entries] == [1, 2]
    assert [entry.reward for entry in entries] == [1.0, None]
    assert client.forgotten([entry.decision_id for entry in entries]) == []
    client.forget("log")
    assert len(client.forgotten([entry.decision_id for entry in entries])) == 2
