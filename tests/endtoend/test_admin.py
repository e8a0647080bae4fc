"""Administrators' endpoints need a key; `--insecure-admin` is for trying things on one machine."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from latentbandits import save
from latentbandits.client import Client, ServiceError
from latentbandits.serving import embed
from latentbandits.serving.http.endpoints import ENDPOINTS
from latentbandits.serving.settings import gather
from tests.faults.load import arms
from tests.processes.service import RunningService, run_command

with warnings.catch_warnings():  # about which httpx it would rather have
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

ADMIN = [e for e in ENDPOINTS if e.scope == "admin"]
HERE = ("127.0.0.1", 50_000)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save(arms(0), tmp_path / "models" / "first")
    save(arms(1), tmp_path / "models" / "next")
    return tmp_path / "models" / "first"


def test_without_keys_every_one_is_refused(model: Path, tmp_path: Path) -> None:
    assert len(ADMIN) == 7
    with (
        RunningService(model, folder=tmp_path, insecure=False) as running,
        running.client() as http,
        Client(running.url) as client,
    ):
        decided = client.decide("ann")
        for endpoint in ADMIN:
            path = re.sub(r"\{\w+\}", "ann", endpoint.path)
            answer = http.request(endpoint.method, path, json={})
            assert answer.status_code == 403, path
            assert "--insecure-admin" in answer.json()["error"]["message"]
            elsewhere = http.request(endpoint.method, path, headers={"host": "evil.example"})
            assert elsewhere.status_code == 421, path
        with pytest.raises(ServiceError, match="needs an admin key, and the service has no keys"):
            client.activate(path="next")
        assert client.session("ann").history[0].decision_id == decided.decision_id
        counted = 'latentbandits_requests_total{route="/v1/models/activate",status="403"}'
        assert f"{counted} 2.0" in http.get("/metrics").text


def test_the_flag_lets_in_this_machine_alone(model: Path, tmp_path: Path) -> None:
    options = ("--allowed-hosts", "shop.example")
    with RunningService(model, *options, folder=tmp_path) as running, running.client() as http:
        assert "--insecure-admin: whoever is on this machine" in running.log()

        def status(**headers: str) -> int:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = http.post("/v1/models/activate", json={"path": "next"}, headers=sent)
            return answer.status_code

        assert status(host="shop.example") == 403
        forwarded = ("x_forwarded_for", "x_forwarded_host", "x_forwarded_proto")
        for name in ("forwarded", "via", *forwarded, "x_real_ip"):
            assert status(**{name: "192.0.2.7"}) == 403, name
        assert status(host="evil.example") == 421
        assert status(host="localhost:1") == 200
        assert status() == 200


@pytest.mark.parametrize(
    ("options", "peer", "host", "expected"),
    [
        ({}, HERE, "127.0.0.1", 403),
        ({"insecure_admin": True}, HERE, "127.0.0.1", 200),
        ({"insecure_admin": True}, ("::1", 1), "[::1]", 200),
        ({"insecure_admin": True}, ("192.0.2.7", 1), "127.0.0.1", 403),
        ({"insecure_admin": True}, ("2001:db8::1", 1), "[::1]", 403),
        ({"insecure_admin": True}, HERE, "127.0.0.1.evil.example", 403),
        ({"insecure_admin": True}, HERE, "shop.example", 403),
        ({"authenticated": True}, ("192.0.2.7", 1), "shop.example", 200),
    ],
)
def test_mounted(
    model: Path, options: dict[str, Any], peer: tuple[str, int], host: str, expected: int
) -> None:
    app = embed(model, policy="mmTS", **options)
    with TestClient(app, base_url=f"http://{host}", client=peer) as http:
        answer = http.post("/v1/models/activate", json={"path": "next"})
    assert answer.status_code == expected, answer.text


def test_an_outer_app_that_authenticates_does_not_open_keys(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    run_command("key", "shop", "--keys", keys)
    with TestClient(embed(model, policy="mmTS", authenticated=True, keys=str(keys))) as http:
        assert http.post("/v1/models/activate", json={"path": "next"}).status_code == 401


def test_it_is_for_a_service_without_keys(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"insecure_admin is for a service without keys.*'k.toml'"):
        gather({"keys": "k.toml", "insecure_admin": True}, None, {})
    assert gather({}, None, {"LATENTBANDITS_INSECURE_ADMIN": "true"}).insecure_admin
    done = run_command("serve", model, "--insecure-admin", "--keys", tmp_path / "keys.toml")
    assert done.returncode == 2
    assert "leave one of them out" in done.stderr
