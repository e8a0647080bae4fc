"""The real service in a process of its own, asked over loopback."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars
import pytest

from latentbandits import GaussianArms, LinearGaussian, save
from latentbandits.client import AsyncClient, Client, NoAnswerError, ServiceError
from latentbandits.serving.settings import Settings, gather
from tests.processes.service import RunningService, command, free_port

RNG = np.random.default_rng(21)
ARMS = GaussianArms(RNG.random((3, 4)), 0.5, 0.2)
LINEAR = LinearGaussian(RNG.normal(size=(3, 2)), 0.5, np.stack([0.1 * np.eye(2)] * 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("service")
    save(ARMS, path / "models" / "arms")
    save(GaussianArms(RNG.random((2, 4)), 0.5), path / "models" / "next")
    save(LINEAR, path / "models" / "linear")
    return path


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[RunningService]:
    store = f"sqlite:{folder / 's.sqlite'}"
    with RunningService(folder / "models" / "arms", "--store", store, folder=folder) as running:
        yield running


@pytest.fixture(scope="module")
def http(service: RunningService) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


def problem(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_decide_and_reward(http: httpx.Client) -> None:
    response = http.post("/v1/decide", json={"session": "ann"})
    assert response.status_code == 201
    decided = response.json()
    assert set(decided) == {
        "decision_id", "action", "index", "propensity", "propensity_kind", "state_probabilities",
        "model", "policy", "round", "fallback",
    }  # fmt: skip
    reward = {"decision_id": decided["decision_id"], "value": 0.5}
    for status in ("applied", "duplicate"):
        answer = http.post("/v1/reward", json=reward)
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert problem(http.post("/v1/reward", json={**reward, "value": 1})) == (409, "conflict")
    missing = {"decision_id": "0" * 32, "value": 1}
    assert problem(http.post("/v1/reward", json=missing)) == (404, "not_found")


def test_batches(http: httpx.Client) -> None:
    requests = [{"session": f"batch {i % 3}"} for i in range(100)]
    requests[50]["actions"] = ["9"]  # type: ignore[assignment]
    response = http.post("/v1/decide", json=requests)
    assert response.status_code == 200
    answers = response.json()
    assert answers[50]["error"]["code"] == "unknown_action"
    made = [answer for answer in answers if "decision_id" in answer]
    assert len(made) == 99
    told = [{"decision_id": d["decision_id"], "value": 0.1} for d in made]
    statuses = [r["status"] for r in http.post("/v1/reward", json=told).json()]
    assert statuses == ["applied"] * 99
    for batch in (requests + requests[:1], []):
        assert http.post("/v1/decide", json=batch).status_code == 422


def test_request_ids(http: httpx.Client) -> None:
    body = {"session": "rid", "request_id": "the same"}
    first = http.post("/v1/decide", json=body)
    assert http.post("/v1/decide", json=body).content == first.content
    other = http.post("/v1/decide", json={**body, "actions": ["0", "1"]})
    assert problem(other) == (409, "conflict")


def test_sessions(http: httpx.Client) -> None:
    name = "a/b c?ü"
    for session in (name, "another"):
        decided = http.post("/v1/decide", json={"session": session}).json()
        http.post("/v1/reward", json={"decision_id": decided["decision_id"], "value": 1})
    path = "/v1/sessions/a%2Fb%20c%3F%C3%BC"
    view = http.get(path).json()
    assert (view["session"], view["round"], view["rewards"]) == (name, 1, 1)
    assert view["history"][0]["reward"] == 1
    assert set(view["belief"]) == {"log_weights", "parameters"}
    merged = http.post("/v1/sessions/merge", json={"into": "another", "other": name})
    assert merged.json()["rewards"] == 2
    assert http.delete(path).json()["sessions"] == 2
    for gone in (path, "/v1/sessions/another", "/v1/sessions/never", "/v1/sessions/"):
        assert problem(http.get(gone))[0] == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"{", 400), (b"\xff\xfe", 400), (b"null", 422), (b"[1]", 422), (b"3", 422),
        (b'{"session": 3}', 422), (b'{"session": ""}', 422), (b'{"session": "a\\u0000"}', 422),
        (b'{"session": "a\\n"}', 422), (b'{"session": "a", "typo": 1}', 422),
        (b'{"session": "a", "features": [[NaN]]}', 400), (b'{"session": "\\ud800"}', 400),
        (b'{"session": "a", "features": [[1e999]]}', 422),
        (b'{"session": "a", "actions": []}', 422),
        (b'{"session": "a", "actions": ["0", "0"]}', 422), (b'{"session": "\xff"}', 400),
        (b'{"session": "a", "features": [[1, 2], [1]]}', 422), (b"[" * 100_000, 422),
        (b'{"session": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422),
        (b'{"session": "' + b"a" * 201 + b'"}', 422),
    ],
)  # fmt: skip
def test_bad_bodies(http: httpx.Client, body: bytes, status: int) -> None:
    response = http.post("/v1/decide", content=body, headers={"content-type": "application/json"})
    assert response.status_code == status, response.text
    assert response.json()["error"]["message"]


def test_bodies_must_be_json_and_small(http: httpx.Client) -> None:
    body = b'{"session": "a"}'
    assert problem(http.post("/v1/decide", content=body)) == (415, "media_type")
    form = {"content-type": "text/plain"}
    assert problem(http.post("/v1/decide", content=body, headers=form)) == (415, "media_type")
    large = b'{"session": "' + b"a" * 2**20 + b'"}'
    typed = {"content-type": "application/json"}
    assert problem(http.post("/v1/decide", content=large, headers=typed)) == (413, "too_large")


def test_other_hosts_are_not_answered(http: httpx.Client) -> None:
    response = http.post("/v1/decide", json={"session": "a"}, headers={"host": "evil.example"})
    assert problem(response) == (421, "host")
    assert http.get("/v1/models", headers={"host": "localhost:99"}).status_code == 200


def test_unknown_paths_and_methods(http: httpx.Client) -> None:
    assert problem(http.get("/nothing")) == (404, "http")
    response = http.get("/v1/decide")
    assert (problem(response), response.headers["allow"]) == ((405, "http"), "POST")


def test_the_document(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    decide = document["paths"]["/v1/decide"]["post"]
    assert set(decide["responses"]) >= {"200", "201", "400", "409", "413", "422", "503"}
    assert "DecideRequest" in document["components"]["schemas"]
    number = document["components"]["schemas"]["RewardRequest"]["properties"]["value"]
    assert number["maximum"] == 1e9


def test_the_reference_page(http: httpx.Client) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path in http.get("/openapi.json").json()["paths"]:
        assert path in page.text
    assert "curl -s http://127.0.0.1:8000/v1/decide" in page.text
    assert "may answer" in page.text
    assert "<script" not in page.text
    assert not re.search("(src|href)=[\"']?(https?:)?//", page.text)


def test_health_metrics_overview(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "up"}
    assert http.get("/readyz").json() == {"status": "ready"}
    http.post("/v1/decide", json={"session": "metrics"})
    text = http.get("/metrics").text
    for name in ("latentbandits_requests_total", "latentbandits_request_seconds_bucket",
                 'latentbandits_rewards_total{status="applied"}', "latentbandits_sessions_open",
                 'latentbandits_belief_entropy_bits{group="policy",round="1"}',
                 "latentbandits_reward_sum", "latentbandits_decisions_total"):  # fmt: skip
        assert name in text
    overview = http.get("/v1/overview").json()
    assert overview["counts"]["decisions"] >= 1
    assert any(recent["session"] == "metrics" for recent in overview["recent"])
    page = http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_the_log_comes_in_pages_and_as_a_table(
    http: httpx.Client, folder: Path, tmp_path: Path
) -> None:
    http.post("/v1/decide", json=[{"session": "log", "actions": ["1", "2"]}] * 3)
    seen: list[dict[str, Any]] = []
    rewards: list[dict[str, Any]] = []
    since = ""
    while True:
        page = http.get("/v1/log", params={"since": since, "limit": 7}).json()
        if page["next"] == since:
            break
        seen += page["decisions"]
        rewards += page["rewards"]
        since = page["next"]
    ids = [decision["decision_id"] for decision in seen]
    assert ids == sorted(set(ids))
    assert {one["decision_id"] for one in rewards} <= set(ids)
    assert len({one["cursor"] for one in [*seen, *rewards]}) == len(seen) + len(rewards)
    assert seen[-1]["eligible"] == ["1", "2"]
    twice, other = {"limit": ["1", "2"]}, {"limt": "1"}
    for wrong in ({"limit": "0"}, {"limit": "x"}, {"limit": "1001"}, {"since": "zz"}, twice, other):
        assert http.get("/v1/log", params=wrong).status_code == 422
    out = tmp_path / "log.parquet"
    store = f"sqlite:{folder / 's.sqlite'}"
    done = subprocess.run(command("export", "--store", store, "--out", out), capture_output=True)
    assert done.returncode == 0, done.stderr
    table = polars.read_parquet(out)
    assert table["decision_id"].to_list() == ids
    assert table["propensity"].is_between(0, 1).all()


def test_models_can_be_swapped(http: httpx.Client) -> None:
    before = http.get("/v1/models").json()
    for path, status in (("missing", 422), ("../../../etc", 422), ("linear", 422)):
        response = http.post("/v1/models/activate", json={"path": path})
        assert response.status_code == status, response.text
    assert http.post("/v1/models/activate", json={}).status_code == 422
    assert http.post("/v1/models/activate", json={"model": "nope"}).status_code == 404
    assert http.get("/v1/models").json() == before
    after = http.post("/v1/models/activate", json={"path": "next", "mode": "migrated"}).json()
    assert after["active"] != before["active"]
    assert len(after["swaps"]) == 2
    back = http.post("/v1/models/activate", json={"model": before["active"], "mode": "pinned"})
    assert back.json()["active"] == before["active"]


def test_a_second_service_on_the_file_is_refused(service: RunningService, folder: Path) -> None:
    done = subprocess.run(
        command("serve", folder / "models" / "arms", "--store", f"sqlite:{folder / 's.sqlite'}"),
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"in use by process {service.pid} on" in done.stderr
    assert "Traceback" not in done.stderr


def test_clients(service: RunningService) -> None:
    with Client(service.url) as client:
        decided = client.decide("client", request_id="c1")
        assert client.decide("client", request_id="c1") == decided
        assert client.decide("excluding", exclude=["0", "1", "3"]).action == "2"
        assert client.reward(decided.decision_id, 0.3).status == "applied"
        assert client.session("client").rewards == 1
        assert client.merge("client", "client").round == 1
        assert client.models().active == decided.model
        assert client.overview().counts["decisions"] > 0
        assert client.forget("client").sessions == 1
        with pytest.raises(ServiceError, match="404 not_found"):
            client.session("client")

    async def talk() -> None:
        async with AsyncClient(service.url) as client:
            decided = await client.decide("async")
            assert (await client.reward(decided.decision_id, 1.0)).status == "applied"
            assert (await client.session("async")).round == 1
            await client.forget("async")

    asyncio.run(talk())


def test_a_client_without_an_answer_falls_back() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url, timeout=0.1, retries=1) as client:
        decided = client.decide("x", actions=["a", "b"], default="b")
        assert (decided.action, decided.index, decided.fallback) == ("b", 1, True)
        with pytest.raises(NoAnswerError):
            client.decide("x")

    async def talk() -> None:
        async with AsyncClient(url, timeout=0.1, retries=0) as client:
            assert (await client.decide("x", default="b")).fallback

    asyncio.run(talk())


def test_keys(folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    made = {}
    for name, scopes in (("web", "decide,reward"), ("eyes", "read"), ("root", "admin")):
        done = subprocess.run(
            command("key", name, "--keys", keys, "--scopes", scopes), capture_output=True, text=True
        )
        made[name] = done.stdout.strip()
    assert keys.stat().st_mode & 0o077 == 0
    assert not any(key in keys.read_text() for key in made.values())
    arguments = (folder / "models" / "arms", "--keys", keys)
    with RunningService(*arguments, folder=tmp_path) as running, running.client() as http:

        def status(key: str | None, method: str, path: str, **options: Any) -> int:
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            return http.request(method, path, headers=headers, **options).status_code

        decide = {"json": {"session": "a"}}
        assert status(None, "POST", "/v1/decide", **decide) == 401
        assert status("lb_wrong", "POST", "/v1/decide", **decide) == 401
        assert status(made["web"], "POST", "/v1/decide", **decide) == 201
        assert status(made["web"], "GET", "/v1/sessions/a") == 403
        assert status(made["eyes"], "GET", "/v1/sessions/a") == 200
        assert status(made["eyes"], "GET", "/metrics") == 200
        assert status(None, "GET", "/metrics") == 401
        assert status(made["eyes"], "DELETE", "/v1/sessions/a") == 403
        assert status(made["root"], "DELETE", "/v1/sessions/a") == 200
        assert status(None, "GET", "/healthz") == 200
        with Client(running.url, made["web"]) as client:
            assert client.decide("b").round == 1
        assert not any(key in running.log() for key in made.values())


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_without_keys_only_loopback(folder: Path, host: str) -> None:
    done = subprocess.run(
        command("serve", folder / "models" / "arms", "--host", host),
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert "loopback addresses only" in done.stderr


def test_settings_come_from_flags_then_file_then_environment(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('port = 1\npolicy = "mTS"\nholdout_share = 0.5\n')
    environment = {"LATENTBANDITS_PORT": "2", "LATENTBANDITS_MAX_WAITING": "7", "HOME": "/"}
    settings = gather({"policy": "mUCB"}, str(config), environment)
    assert (settings.policy, settings.port, settings.max_waiting) == ("mUCB", 1, 7)
    assert settings.holdout_share == 0.5
    for flags, text, variables, why in (
        ({"port": "x"}, "", {}, "Expected `int`"),
        ({"holdout_share": "2"}, "", {}, "<= 1.0"),
        ({"policy": "best"}, "", {}, "unknown policy 'best'"),
        ({"session_ttl": "1e9"}, "", {}, "must be at least session_ttl"),
        ({}, "nonsense = 1", {}, "unknown setting 'nonsense'"),
        ({}, "= 1", {}, "is not TOML"),
        ({}, "", {"LATENTBANDITS_TYPO": "1"}, "LATENTBANDITS_TYPO is not a setting"),
    ):
        config.write_text(text)
        with pytest.raises(ValueError, match=why):
            gather(flags, str(config), variables)


def test_help_lists_every_setting() -> None:
    shown = subprocess.run(command("serve", "--help"), capture_output=True, text=True).stdout
    for name in Settings.__struct_fields__:
        assert f"--{name.replace('_', '-')}" in shown
    assert "environment variable (LATENTBANDITS_SESSION_TTL)" in " ".join(shown.split())


@pytest.mark.slow
def test_the_demonstration_plays_by_itself(tmp_path: Path) -> None:
    with RunningService("--demo", folder=tmp_path) as running, running.client() as http:
        deadline = time.monotonic() + 20
        counts = {"applied": 0}
        while counts["applied"] < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
            counts = http.get("/v1/overview").json()["counts"]
        assert counts["applied"] >= 5
        code, seconds = running.terminate()
        assert code == 0
        assert seconds < 10


@pytest.mark.slow
def test_auto_is_tuned_once_for_a_model_without_a_recommendation(
    folder: Path, tmp_path: Path
) -> None:
    """The store keeps the tuned policy: a restart uses it without tuning again."""
    store = f"sqlite:{tmp_path / 's.sqlite'}"
    with RunningService(
        folder / "models" / "arms", "--store", store, folder=tmp_path, tuned=True
    ) as running:
        actual = re.search(
            r"arms has no recommended policy; tuned: (\S+) (?:is|explores)", running.log()
        )
        assert actual is not None
        winner = actual[1]
        assert f"policy {winner} (tuned for it)" in running.log()
        with running.client() as http:
            decided = http.post("/v1/decide", json={"session": "ann"}).json()
            assert decided["policy"] == winner
        running.terminate()
        running.start()
        assert running.log().count("no recommended policy") == 1
        assert running.log().count(f"policy {winner} (tuned for it)") == 2


def test_auto_is_the_default_policy_where_no_users_can_be_drawn(
    folder: Path, tmp_path: Path
) -> None:
    """A linear model without a catalogue does not say which actions are offered."""
    with RunningService(folder / "models" / "linear", folder=tmp_path, tuned=True) as running:
        said = running.log()
    assert "linear has no recommended policy, and none was tuned (this model's actions" in said
    assert "policy mmTS (the default: nothing is recommended, nor tuned)" in said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "no model is active"),
        (["nowhere"], "is not a saved model"),
        (["--demo", "--store", "redis://x"], "is not a store"),
        (["--demo", "--config", "missing.toml"], "cannot read the settings file"),
        (["--demo", "--keys", "missing.toml"], "cannot read the keys file"),
        (["--demo", "--policy", "UCB1"], "needs a model with a fixed set of actions"),
    ],
)
def test_bad_starts_are_one_line(arguments: list[str], why: str, tmp_path: Path) -> None:
    done = subprocess.run(
        command("serve", *arguments), capture_output=True, text=True, timeout=30, cwd=tmp_path
    )
    assert done.returncode == 2
    assert why in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
