"""Who may do what: every scope at every endpoint, and no key in the log."""

from __future__ import annotations

import subprocess
from pathlib import Path

from latentbandits import save
from latentbandits.serving.http.endpoints import ENDPOINTS
from tests.faults.load import arms
from tests.faults.table import Result
from tests.processes.service import RunningService, command

_SCOPES = ("decide", "reward", "read", "admin")
_HOSTS = ("0.0.0.0", "::", "192.0.2.7", "example.org")


def run(folder: Path, full: bool) -> list[Result]:
    save(arms(0), folder / "models" / "arms")
    model, file = folder / "models" / "arms", folder / "keys.toml"
    keys = {}
    for scope in _SCOPES:
        made = subprocess.run(
            command("key", scope, "--keys", file, "--scopes", scope), capture_output=True, text=True
        )
        keys[scope] = made.stdout.strip()
    wrong: list[str] = []
    request = 0
    with RunningService(model, "--keys", file, folder=folder) as service, service.client() as http:
        presented = [("", None), ("wrong", "lb_wrong"), *keys.items()]
        for endpoint in ENDPOINTS:
            for scope, key in presented:
                headers = {} if key is None else {"authorization": f"Bearer {key}"}
                path = endpoint.path.replace("{session}", "nobody")
                body = b"{}" if endpoint.body is not None else b""
                headers["content-type"] = "application/json"
                status = http.request(endpoint.method, path, headers=headers, content=body)
                allowed = scope in (endpoint.scope, "admin")
                expected = status.status_code not in (401, 403)
                request += 1
                if allowed != expected:
                    wrong.append(f"{scope} {endpoint.path}: {status.status_code}")
        leaked = sum(key in service.log() for key in keys.values())
    leaked += sum(key in file.read_text() for key in keys.values())
    refused = 0
    for host in _HOSTS if full else _HOSTS[:1]:
        done = subprocess.run(
            command("serve", model, "--host", host), capture_output=True, text=True, timeout=60
        )
        refused += done.returncode == 2 and "loopback" in done.stderr
    hosts = len(_HOSTS) if full else 1
    shown = f", for instance {wrong[0]}" if wrong else ""
    return [
        Result(
            "API keys and scopes",
            f"{request} combinations of key and endpoint, {len(wrong)} wrong{shown}; {leaked} "
            f"keys in the log or the file; without keys {refused} of {hosts} other addresses "
            "refused",
            not wrong and leaked == 0 and refused == hosts,
        )
    ]
