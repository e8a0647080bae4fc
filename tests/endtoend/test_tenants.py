"""Keys with sessions of their own and a rate; keys that come and go; the audit log."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from latentbandits import save
from latentbandits.serving.engine.idempotency import digest
from tests.faults.load import arms
from tests.processes.service import RunningService, run_command

Ask = Callable[..., httpx.Response]


def make_key(file: Path, name: str, *options: str) -> str:
    made = run_command("key", name, "--keys", file, *options)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


class Tenants:
    """A service with keys, and what each key may ask."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file, self.audit = folder / "keys.toml", folder / "audit.jsonl"
        save(arms(0), folder / "models" / "arms")
        save(arms(1), folder / "models" / "next")
        everything = ("--scopes", "decide,reward,read,admin")
        self.keys = {
            "root": make_key(self.file, "root", "--scopes", "admin"),
            "shop": make_key(self.file, "shop", *everything, "--sessions", "shop/"),
            "news": make_key(self.file, "news", *everything, "--sessions", "news/"),
            "slow": make_key(self.file, "slow", "--scopes", "decide", "--rate", "0.2"),
        }
        self.service = RunningService(
            folder / "models" / "arms", "--store", f"sqlite:{folder / 's.sqlite'}",
            "--keys", self.file, "--audit", self.audit, folder=folder,
        )  # fmt: skip

    def ask(self, key: str, method: str, path: str, **options: Any) -> httpx.Response:
        presented = self.keys.get(key, key)
        headers = {"authorization": f"Bearer {presented}"}
        with self.service.client() as http:
            return http.request(method, path, headers=headers, **options)

    def decide(self, key: str, session: str, **fields: Any) -> httpx.Response:
        return self.ask(key, "POST", "/v1/decide", json={"session": session, **fields})


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    tenants = Tenants(tmp_path_factory.mktemp("tenants"))
    with tenants.service:
        yield tenants


def test_a_key_sees_only_its_sessions(tenants: Tenants) -> None:
    mine = tenants.decide("shop", "shop/ann")
    assert mine.status_code == 201
    assert tenants.decide("shop", "news/bob").status_code == 403
    theirs = tenants.decide("news", "news/bob").json()
    told = {"decision_id": theirs["decision_id"], "value": 0.5}
    assert tenants.ask("shop", "POST", "/v1/reward", json=told).status_code == 404
    assert tenants.ask("news", "POST", "/v1/reward", json=told).status_code == 200
    for method in ("GET", "DELETE"):
        assert tenants.ask("shop", method, "/v1/sessions/news%2Fbob").status_code == 403
    merge = {"into": "shop/ann", "other": "news/bob"}
    assert tenants.ask("shop", "POST", "/v1/sessions/merge", json=merge).status_code == 403
    for path in ("/v1/overview", "/metrics"):
        assert tenants.ask("shop", "GET", path).status_code == 403
        assert tenants.ask("root", "GET", path).status_code == 200
    swap = {"path": "next"}
    assert tenants.ask("shop", "POST", "/v1/models/activate", json=swap).status_code == 403
    for key in ("shop", "slow"):  # a key of some sessions, and one that may decide only
        added = tenants.ask(key, "POST", "/v1/actions", json={"action": "new"})
        assert added.status_code == 403
        assert tenants.ask(key, "DELETE", "/v1/actions/0").status_code == 403
    batch = [{"session": "shop/a"}, {"session": "news/b"}]
    answers = tenants.ask("shop", "POST", "/v1/decide", json=batch).json()
    assert [a.get("error", {}).get("code") for a in answers] == [None, "forbidden"]


def test_a_session_merged_into_another_keys_is_that_keys(tenants: Tenants) -> None:
    mine = tenants.decide("shop", "shop/kim").json()
    tenants.decide("news", "news/kim")
    tenants.decide("shop", "shop/kept")
    merge = {"into": "news/kim", "other": "shop/kim"}
    assert tenants.ask("root", "POST", "/v1/sessions/merge", json=merge).status_code == 200
    assert tenants.decide("shop", "shop/kim").status_code == 403
    for method in ("GET", "DELETE"):
        assert tenants.ask("shop", method, "/v1/sessions/shop%2Fkim").status_code == 403
    merge = {"into": "shop/kept", "other": "shop/kim"}
    assert tenants.ask("shop", "POST", "/v1/sessions/merge", json=merge).status_code == 403
    told = {"decision_id": mine["decision_id"], "value": 0.5}  # a decision of its own
    assert tenants.ask("shop", "POST", "/v1/reward", json=told).status_code == 200
    assert tenants.ask("news", "GET", "/v1/sessions/news%2Fkim").json()["rewards"] == 1


def test_a_keys_log_has_only_its_sessions(tenants: Tenants) -> None:
    for i in range(5):
        tenants.decide("shop", f"shop/{i}")
        tenants.decide("news", f"news/{i}")
    seen: list[str] = []
    since = ""
    while True:
        page = tenants.ask("news", "GET", "/v1/log", params={"since": since, "limit": 3}).json()
        seen += [decision["session"] for decision in page["decisions"]]
        if page["next"] == since:
            break
        since = page["next"]
    assert {f"news/{i}" for i in range(5)} <= set(seen)
    assert all(name.startswith("news/") for name in seen)


def test_request_ids_of_two_keys_do_not_meet(tenants: Tenants) -> None:
    one = tenants.decide("shop", "shop/x", request_id="same")
    other = tenants.decide("news", "news/x", request_id="same")
    assert (one.status_code, other.status_code) == (201, 201)
    assert tenants.decide("shop", "shop/x", request_id="same").content == one.content


def test_a_rate_is_answered_with_429_and_when_to_come_back(tenants: Tenants) -> None:
    answers = [tenants.decide("slow", "s") for _ in range(4)]
    assert answers[0].status_code == 201
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert all(1 <= int(answer.headers["retry-after"]) <= 5 for answer in refused)
    assert refused[0].json()["error"]["code"] == "rate"
    batch = tenants.ask("root", "POST", "/v1/decide", json=[{"session": "s"}] * 100)
    assert batch.status_code == 200


def test_keys_come_and_go_without_a_restart(tenants: Tenants) -> None:
    made = make_key(tenants.file, "new", "--scopes", "decide")
    _until(lambda: tenants.decide(made, "n").status_code == 201)
    text = tenants.file.read_text()
    tenants.file.write_text(text[: text.index("[new]")])
    os.kill(tenants.service.pid, signal.SIGHUP)
    _until(lambda: tenants.decide(made, "n").status_code == 401)
    tenants.file.write_text("not [ keys")
    time.sleep(0.6)
    assert tenants.decide("root", "n").status_code == 201
    tenants.file.write_text(text)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_key_learns_nothing_of_the_decisions_of_others(tenants: Tenants) -> None:
    mine = tenants.decide("shop", "shop/eve").json()["decision_id"]
    theirs = tenants.decide("news", "news/eve").json()["decision_id"]
    asked = {"decisions": [theirs, mine, "0" * 32, "no id"]}
    for key, kept in (("shop", mine), ("news", theirs)):
        answer = tenants.ask(key, "POST", "/v1/log/forgotten", json=asked)
        assert answer.json()["forgotten"] == [one for one in asked["decisions"] if one != kept]


def test_admin_actions_are_in_the_audit_log(tenants: Tenants) -> None:
    assert (
        tenants.ask("root", "POST", "/v1/models/activate", json={"path": "no"}).status_code == 422
    )
    assert (
        tenants.ask("root", "POST", "/v1/models/activate", json={"path": "next"}).status_code == 200
    )
    tenants.decide("shop", "shop/gone")
    forget = "/v1/sessions/shop%2Fgone?request_id=forget+shop%2Fgone"
    assert tenants.ask("shop", "DELETE", forget).json() == {"session": "shop/gone", "sessions": 1}
    assert tenants.ask("shop", "DELETE", forget).json() == {"session": "shop/gone", "sessions": 1}
    merged = {"into": "no/one", "other": "no/body"}
    assert tenants.ask("root", "POST", "/v1/sessions/merge", json=merged).status_code == 404
    tenants.ask("lb_wrong", "DELETE", "/v1/sessions/x")
    lines = [json.loads(line) for line in tenants.audit.read_text().splitlines()]
    assert tenants.audit.stat().st_mode & 0o077 == 0
    short = [(x["key"], x["action"], x.get("path") or x.get("session"), x["status"]) for x in lines]
    gone = ("shop", "delete_session", digest("shop/gone"), 200)
    activated = ("root", "activate", "next", 200)
    assert short[-4:-1] == [activated, gone, gone]
    assert short[-5] == ("root", "activate", "no", 422)
    assert [lines[-1][name] for name in merged] == [digest(name) for name in merged.values()]
    ids = ("shop/gone", *merged.values())
    assert not [one for one in ids if one in tenants.audit.read_text() + tenants.service.log()]
    assert b"shop/gone" not in b"".join(_answers_kept(tenants.folder / "s.sqlite"))
    assert not any(key in tenants.audit.read_text() for key in tenants.keys.values())


def _answers_kept(store: Path) -> list[bytes]:
    """Return the notes of a store that is in use."""
    connection = apsw.Connection(str(store))
    return [value for (value,) in connection.execute("SELECT value FROM notes")]


def test_errors_do_not_say_where_models_are(tenants: Tenants) -> None:
    answer = tenants.ask("root", "POST", "/v1/models/activate", json={"path": "no"})
    assert "/" not in answer.json()["error"]["message"]


@pytest.mark.parametrize(("name", "path"), [(".", "%2E"), ("..", "%2E%2E"), ("../x", "..%2Fx")])
def test_sessions_with_dots(tenants: Tenants, name: str, path: str) -> None:
    assert tenants.decide("root", name).status_code == 201
    view = tenants.ask("root", "GET", f"/v1/sessions/{path}")
    assert (view.status_code, view.json().get("session")) == (200, name)
    assert tenants.ask("root", "DELETE", f"/v1/sessions/{path}").status_code == 200
