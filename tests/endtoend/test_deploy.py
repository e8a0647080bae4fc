"""The deploy page as written: nginx and the service, and what a stranger can do. No mocks."""

from __future__ import annotations

import json
import re
import shlex
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from latentbandits import save
from latentbandits.client import Client
from latentbandits.serving.http.endpoints import ENDPOINTS
from latentbandits.serving.http.keys import add_key
from tests.faults.load import arms
from tests.processes.nginx import find_nginx, make_certificate, nginx
from tests.processes.service import RunningService, free_port

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md").read_text()
NAME = "bandit.example.com"
PUBLIC = {("POST", "/v1/decide"), ("POST", "/v1/reward")}
ACTIVATE = {"path": "next", "mode": "migrated"}
FORMER = """
upstream bandit { server 127.0.0.1:8000; keepalive 32; }
server {
    listen 443 ssl;
    ssl_certificate /etc/ssl/bandit/fullchain.pem;
    ssl_certificate_key /etc/ssl/bandit/privkey.pem;
    location /v1/ {
        proxy_pass http://bandit;
        proxy_set_header Host localhost;
    }
}
"""  # what the page said before: all of /v1/, with another Host


def block(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(found) == 1, language
    return str(found[0])


def replaced(text: str, changes: dict[str, str]) -> str:
    """Return a text of the page with ports and paths of this machine, each of which it names."""
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@dataclass
class Site:
    """The service behind nginx, with its keys."""

    service: RunningService
    port: int
    trust: ssl.SSLContext
    shop: str = ""
    operator: str = ""

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        key: str = "",
        host: str = NAME,
        headers: str = "",
    ) -> tuple[int, str]:
        """Send a request to nginx just as it is written; the status and the body of the answer."""
        content = json.dumps(body).encode()
        head = (
            f"{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n"
        )
        head += f"authorization: Bearer {key}\r\n\r\n" if key else "\r\n"
        with (
            socket.create_connection(("127.0.0.1", self.port), 10) as plain,
            self.trust.wrap_socket(plain, server_hostname=NAME) as wire,
        ):
            wire.sendall(head.encode() + content)
            answer = b"".join(iter(lambda: wire.recv(65536), b"")).decode()
        return int(answer.split(" ", 2)[1]), answer.partition("\r\n\r\n")[2]

    def active(self) -> str:
        with Client(self.service.url, self.operator) as client:
            return client.models().active


@pytest.fixture(scope="module")
def program() -> str:
    found = find_nginx()
    if found is None:
        pytest.skip("NO NGINX: install it (apt install nginx-light) to test the deploy page")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(arms(0), tmp_path / "models" / "first")
    save(arms(1), tmp_path / "models" / "next")
    return tmp_path


def configured(text: str, site: Site, certificate: tuple[Path, Path]) -> str:
    return replaced(
        text,
        {
            "127.0.0.1:8000": f"127.0.0.1:{site.service.port}",
            "listen 443 ssl": f"listen 127.0.0.1:{site.port} ssl",
            "/etc/ssl/bandit/fullchain.pem": str(certificate[0]),
            "/etc/ssl/bandit/privkey.pem": str(certificate[1]),
        },
    )


@pytest.fixture
def site(program: str, folder: Path) -> Iterator[Site]:
    """The page's unit and the page's nginx."""
    keys = folder / "keys.toml"
    shop = add_key(str(keys), "shop", ["decide", "reward"])
    operator = add_key(str(keys), "operator", ["admin"])
    line = re.search(r"^ExecStart=(.*?)$", block("ini").replace("\\\n", ""), re.MULTILINE)
    assert line is not None
    paths = {
        "/srv/bandit/models": str(folder / "models"),
        "sqlite:/var/lib/bandit": f"sqlite:{folder}",
        " /var/lib/bandit/audit.jsonl": f" {folder}/audit.jsonl",
        "%d/keys.toml": str(keys),
    }
    executable, command, *words = shlex.split(replaced(line[1], paths))
    assert (Path(executable).name, command) == ("latentbandits", "serve")
    certificate = make_certificate(NAME, folder)
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    with RunningService(*words, folder=folder) as service:
        site = Site(service, free_port(), trust, shop, operator)
        text = configured(block("nginx"), site, certificate)
        with nginx(program, text, site.port, folder / "nginx"):
            yield site


def test_callers_decide_and_reward_through_the_proxy(site: Site) -> None:
    for i in range(3):
        status, answer = site.ask("POST", "/v1/decide", {"session": f"s{i}"}, key=site.shop)
        assert status == 201, answer
        told = {"decision_id": json.loads(answer)["decision_id"], "value": 1.0}
        status, answer = site.ask("POST", "/v1/reward", told, key=site.shop)
        assert (status, json.loads(answer)["status"]) == (200, "applied")
    assert site.ask("POST", "/v1/decide", {"session": "s"})[0] == 401
    assert site.ask("POST", "/v1/decide", {"session": "s"}, key="lb_wrong")[0] == 401
    for host in ("evil.example", f"evil.{NAME}"):
        status, answer = site.ask("POST", "/v1/decide", {"session": "s"}, key=site.shop, host=host)
        assert (status, json.loads(answer)["error"]["code"]) == (421, "host")


def test_a_stranger_cannot_activate_a_model(site: Site) -> None:
    """Nor reach anything else than decisions and rewards, whatever the path or the Host says.

    Not even with the operator's key, with which the same request does activate on the machine.
    """
    before = site.active()
    paths = [(e.method, re.sub(r"\{\w+\}", "x", e.path)) for e in ENDPOINTS]
    paths += [("GET", path) for path in ("/", "/metrics", "/docs", "/play/", "/openapi.json")]
    paths += [("HEAD", "/v1/models"), ("PUT", "/v1/decide"), ("DELETE", "/v1/reward")]
    paths += [
        ("POST", path)
        for path in (
            "//v1/models/activate", "/v1//models/activate", "/v1/decide/../models/activate",
            "/v1/decide/%2e%2e/models/activate", "/v1/decide%2f..%2fmodels/activate",
            "/v1/decide/", "/v1/decide%00/../models/activate", "/v1/models/activate?/v1/decide",
            "/v1/models/activate#/v1/decide", "/v1/decide;/../models/activate",
            "/v1/models/activate/../../decide", "/V1/models/activate",
            "http://localhost/v1/models/activate", "/v1/decide\\..\\models\\activate",
        )
    ]  # fmt: skip
    for method, path in paths:
        if (method, path) in PUBLIC:
            continue
        for key in ("", site.shop, site.operator):
            for host in (NAME, "localhost", "127.0.0.1"):
                status, answer = site.ask(method, path, ACTIVATE, key=key, host=host)
                assert status in (400, 401, 403, 404, 405, 422), (method, path, status, answer)
    assert site.active() == before
    with Client(site.service.url, site.operator) as client:
        client.activate(path="next")
    assert site.active() != before


def test_the_former_page_let_a_stranger_in(program: str, folder: Path) -> None:
    """Shows that these tests can fail: without keys, its proxy hid that strangers are elsewhere.

    The service without keys now refuses them; with `--insecure-admin` only a header that tells of
    the proxy does, which is why the page forbids that flag behind one.
    """
    certificate = make_certificate(NAME, folder)
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    for insecure, headers, expected in (
        (False, "", 403),
        (True, "x-forwarded-for: 192.0.2.7\r\n", 403),
        (True, "", 200),
    ):
        service = RunningService(folder / "models" / "first", folder=folder, insecure=insecure)
        with service:
            site = Site(service, free_port(), trust)
            text = configured(FORMER, site, certificate)
            with nginx(program, text, site.port, folder / f"nginx-{site.port}"):
                status, answer = site.ask("POST", "/v1/models/activate", ACTIVATE, headers=headers)
            assert status == expected, answer


def test_every_recipe_has_keys() -> None:
    recipes = re.findall(r"latentbandits serve (?:[^\n\\]|\\\n)*", PAGE)
    assert len(recipes) == 2
    for recipe in recipes:
        assert "--keys" in recipe, recipe
        assert f"--allowed-hosts {NAME}" in recipe, recipe
        assert "--play false" in recipe, recipe
    assert (
        "LATENTBANDITS_KEYS=/run/secrets/keys.toml LATENTBANDITS_PLAY=false"
        in (Path(__file__).parents[2] / "Containerfile").read_text()
    )
