"""The TypeScript client: packed, installed by npm, and run in Node against a real service."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import msgspec
import pytest

from latentbandits import save
from latentbandits.serving.http.endpoints import ENDPOINTS, PLAY
from latentbandits.serving.http.pages import document
from tests.endtoend.test_reward_tokens import Shop
from tests.faults.load import arms
from tests.processes.service import RunningService, free_port, run_command

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "clients" / "typescript"
NOT_FOR_CLIENTS = (PLAY, "/v1/models/active")  # a game of the pages; what `relearn` reads
MOST_BYTES = 6_000  # minified and gzipped

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


def run(*words: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's sources with its tools for development."""
    folder = tmp_path_factory.mktemp("typescript") / "clients" / "typescript"
    ignored = shutil.ignore_patterns("node_modules", "dist", "out")
    shutil.copytree(SOURCE, folder, ignore=ignored)
    run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", folder=folder)
    return folder


def test_types_are_those_of_the_service_today(package: Path) -> None:
    described = package.parents[1] / "out" / "openapi.json"
    described.parent.mkdir()
    described.write_bytes(msgspec.json.encode(document()))
    run("npm", "run", "generate", folder=package)
    assert (package / "src" / "api.ts").read_text() == (SOURCE / "src" / "api.ts").read_text(), (
        "clients/typescript/src/api.ts is not current: python -m tools.typescript"
    )


def test_every_endpoint_has_its_call() -> None:
    text = (SOURCE / "src" / "index.ts").read_text()
    for endpoint in ENDPOINTS:
        if endpoint.path not in NOT_FOR_CLIENTS:
            assert f'"{endpoint.method}"' in text
            assert endpoint.path.partition("{")[0] in text, endpoint.path


def page_block(language: str) -> str:
    """Return the only block of a language on the page about web apps."""
    text = (ROOT / "docs" / "how-to" / "from-a-web-app.md").read_text()
    [found] = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def project(package: Path) -> Path:
    """A project that has installed the packed client with the page's commands."""
    folder = package.parents[1]
    run("bash", "-euc", page_block("sh"), folder=folder)
    assert [path.name for path in (folder / "node_modules").glob("[!.]*")] == ["latentbandits"]
    installed = json.loads((folder / "node_modules/latentbandits/package.json").read_text())
    assert not installed.get("dependencies")
    return folder


def test_the_client_is_small(package: Path, project: Path) -> None:
    run("npm", "run", "size", folder=package)
    small = (package / "out" / "latentbandits.min.js").read_bytes()
    assert len(gzip.compress(small)) <= MOST_BYTES


def test_the_server_of_the_page_on_web_apps(project: Path, tmp_path: Path) -> None:
    (project / "server.mjs").write_text(page_block("js"))
    shop = Shop(tmp_path)
    port = free_port()
    environment = {"BANDITS_URL": shop.service.url, "BANDITS_KEY": shop.key, "PORT": str(port)}
    with shop.service:
        node = subprocess.Popen(["node", "server.mjs"], cwd=project, env=os.environ | environment)
        try:
            transport = httpx.HTTPTransport(retries=20)
            with httpx.Client(transport=transport, timeout=10) as http:
                page = http.get(f"http://127.0.0.1:{port}/?visitor=ann").text
        finally:
            node.kill()
            node.wait()
        [told] = re.findall(r"const reward = (\{.*?\});", page)
        reward = json.loads(told)
        assert f">{shop.last_action('ann')}</button>" in page
        assert shop.send(reward).json()["status"] == "applied"


def test_the_packed_client_in_node(project: Path, tmp_path: Path) -> None:
    shutil.copy(SOURCE / "test" / "client.test.mjs", project)
    save(arms(0), tmp_path / "model")
    keys = tmp_path / "keys.toml"
    scopes = "decide,reward,read,admin"
    key = run_command("key", "shop", "--keys", keys, "--scopes", scopes).stdout.split()[0]
    with RunningService(tmp_path / "model", "--keys", keys, folder=tmp_path) as service:
        told = run(
            *("node", "--test", "client.test.mjs"),
            folder=project,
            LATENTBANDITS_URL=service.url,
            LATENTBANDITS_KEY=key,
        )
    assert "# fail 0" in told
    assert "# pass 1" in told, told
