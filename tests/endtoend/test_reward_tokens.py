"""Rewards from a browser: a token allows the one reward of one decision, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from latentbandits import save
from latentbandits.client import Client
from latentbandits.serving.http.endpoints import ENDPOINTS
from tests.endtoend.test_tenants import make_key
from tests.faults.load import arms
from tests.processes.service import RunningService

PLAIN = {"content-type": "text/plain;charset=UTF-8"}
SHOP = "https://shop.example"
SECONDS = 1000


class Shop:
    """A service with keys, whose server side decides and whose pages report rewards."""

    def __init__(self, folder: Path, origins: str = SHOP) -> None:
        save(arms(0), folder / "model")
        keys = folder / "keys.toml"
        self.key = make_key(keys, "shop", "--scopes", "decide,read")
        store = f"sqlite:{folder / 'sessions.sqlite'}"
        self.service = RunningService(
            *(folder / "model", "--keys", keys, "--store", store),
            *("--reward-origins", origins, "--reward-token-seconds", str(SECONDS)),
            folder=folder,
        )

    def decide(self, session: str) -> Any:
        with Client(self.service.url, key=self.key, timeout=10) as client:
            decided = client.decide(session, reward_token=True)
        assert isinstance(decided.reward_token, str)
        return decided

    def rewards(self, session: str) -> int:
        with Client(self.service.url, key=self.key, timeout=10) as client:
            return client.session(session).rewards

    def last_action(self, session: str) -> str:
        with Client(self.service.url, key=self.key, timeout=10) as client:
            return client.session(session).history[-1].action

    def send(self, body: Any, headers: dict[str, str] = PLAIN, **more: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        address = f"{self.service.url}/v1/reward"
        return httpx.request(
            more.pop("method", "POST"), address, content=content, headers=headers, timeout=10
        )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("shop"))
    with made.service:
        yield made


def reward(decided: Any, **changes: Any) -> dict[str, Any]:
    return {
        "decision_id": decided.decision_id,
        "value": 0.5,
        "token": decided.reward_token,
    } | changes


def test_a_page_reports_one_reward_without_a_key(shop: Shop) -> None:
    decided = shop.decide("ann")
    answer = shop.send(reward(decided), PLAIN | {"origin": SHOP})
    assert answer.status_code == 200
    assert answer.json()["status"] == "applied"
    assert answer.headers["access-control-allow-origin"] == SHOP
    assert shop.send(reward(decided)).json()["status"] == "duplicate"
    assert shop.send(reward(decided, value=1.0)).status_code == 409
    assert shop.rewards("ann") == 1


def test_a_decision_has_no_token_unless_asked(shop: Shop) -> None:
    with Client(shop.service.url, key=shop.key, timeout=10) as client:
        address = f"{shop.service.url}/v1/decide"
        headers = {"authorization": f"Bearer {shop.key}"}
        answer = httpx.post(address, json={"session": "plain"}, headers=headers)
        assert "reward_token" not in answer.json()
        many = client.decide_many([{"session": "m1", "reward_token": True}, {"session": "m2"}])
    first, second = many
    assert isinstance(first.reward_token, str)  # type: ignore[union-attr]
    assert not isinstance(second.reward_token, str)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"token": "ffffffff.AAAAAAAAAAAAAAAAAAAAAAAA"}, 403, "token"),
        ({"token": ""}, 403, "token"),
        ({"token": "\ud800.x"}, 403, "token"),
        ({"token": "x" * 101}, 422, "invalid"),
        ({"token": None}, 415, "media_type"),
        ({"value": 1e12}, 422, "invalid"),
        ({"value": "NaN"}, 422, "invalid"),
        ({"decision_id": "0" * 32}, 403, "token"),
    ],
)
def test_what_does_not_belong_to_the_decision_is_refused(
    shop: Shop, changes: dict[str, Any], status: int, code: str
) -> None:
    decided = shop.decide("bob")
    answer = shop.send(reward(decided, **changes))
    if answer.status_code == 400:  # a lone surrogate is not JSON
        assert "\ud800" in str(changes["token"])
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert shop.rewards("bob") == 0


def test_tokens_are_of_one_decision_and_cannot_be_lengthened(shop: Shop) -> None:
    mine, other = shop.decide("mine"), shop.decide("other")
    assert shop.send(reward(other, token=mine.reward_token)).status_code == 403
    expiry, _, signature = mine.reward_token.partition(".")
    later = f"{int(expiry, 16) + 1:x}.{signature}"
    assert shop.send(reward(mine, token=later)).status_code == 403
    both = [reward(mine), reward(other, token=mine.reward_token)]
    assert shop.send(both).status_code == 403
    assert shop.rewards("mine") + shop.rewards("other") == 0


def test_a_token_of_another_service_is_refused(shop: Shop, tmp_path: Path) -> None:
    """Each store signs with a secret of its own."""
    mine, other = shop.decide("here"), Shop(tmp_path)
    with other.service:
        theirs = other.decide("here")
        for body in (reward(mine), reward(theirs, token=mine.reward_token)):
            answer = other.send(body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "token")
        assert other.rewards("here") == 0
    assert shop.send(reward(mine, token=theirs.reward_token)).status_code == 403
    assert shop.rewards("here") == 0


def test_a_token_opens_nothing_else(shop: Shop) -> None:
    decided = shop.decide("eve")
    assert shop.send(reward(decided), method="PUT").status_code in (401, 415)
    as_json = {"content-type": "application/json"}
    assert shop.send(reward(decided), as_json, method="PUT").status_code == 401
    for path in ("/v1/decide", "/v1/models/activate", "/v1/sessions/merge"):
        answer = httpx.post(f"{shop.service.url}{path}", json=reward(decided))
        assert answer.status_code == 401
    without = {"decision_id": decided.decision_id, "value": 1}
    assert shop.send(without, as_json).status_code == 401
    large = reward(decided) | {"event_id": "x" * 20_000}
    assert shop.send(large).status_code == 401  # not read without a key
    assert shop.rewards("eve") == 0


def test_other_pages_cannot_read_answers(shop: Shop) -> None:
    decided = shop.decide("dan")
    answer = shop.send(reward(decided), PLAIN | {"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers
    ask = {"origin": SHOP, "access-control-request-method": "POST"}
    preflight = shop.send(b"", ask, method="OPTIONS")
    assert preflight.headers["access-control-allow-methods"] == "POST"
    assert preflight.headers["access-control-allow-origin"] == SHOP
    stranger = shop.send(b"", ask | {"origin": "https://evil.example"}, method="OPTIONS")
    assert "access-control-allow-origin" not in stranger.headers
    key = {"authorization": f"Bearer {shop.key}"}
    for endpoint in ENDPOINTS:
        if endpoint.path != "/v1/reward":
            for method in ("OPTIONS", endpoint.method):
                address = f"{shop.service.url}{endpoint.path}"
                elsewhere = httpx.request(method, address, headers=ask | key)
                assert "access-control-allow-origin" not in elsewhere.headers, endpoint.path


def test_tokens_expire_and_outlive_a_restart(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    with shop.service:
        kept, late = shop.decide("kept"), shop.decide("late")
        shop.service.kill()
        shop.service.start()
        assert shop.send(reward(kept)).json()["status"] == "applied"
        shop.service.kill()
        shop.service.clock = SECONDS + 60
        shop.service.start()
        expired = shop.send(reward(late))
        assert expired.status_code == 403
        assert f"it held for {SECONDS} s" in expired.json()["error"]["message"]
        assert shop.rewards("late") == 0
