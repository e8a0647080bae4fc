"""The real service, in a process of its own, on a port of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx

Found = TypeVar("Found")
_PATIENCE = 30.0


class Running(NamedTuple):
    url: str
    process: subprocess.Popen[bytes]
    api: httpx.Client

    def get(self, path: str) -> Any:
        answer = self.api.get(path)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        answer = self.api.post(path, json=body)
        answer.raise_for_status()
        return answer.json()


@contextmanager
def serving(*arguments: str, key: str | None = None) -> Iterator[Running]:
    """`latentbandits serve` with these arguments, until the block ends."""
    program = str(Path(sys.executable).with_name("latentbandits"))
    command = [program, "serve", "--port", "0", *arguments]
    with tempfile.TemporaryDirectory(prefix="latentbandits-serving-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            url = until(lambda: _address(process, log))
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            with httpx.Client(base_url=url, headers=headers, trust_env=False) as api:
                until(lambda: api.get("/readyz").status_code == 200)
                yield Running(url, process, api)
        finally:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str | None:
    said = log.read_text()
    if process.poll() is not None:
        raise RuntimeError(f"the service ended: {said}")
    found = re.search(r"running on (http://127\.0\.0\.1:\d+)", said)
    return None if found is None else found[1]


def until(call: Callable[[], Found], patience: float = _PATIENCE) -> Found:
    """The first true answer of `call`; AssertionError if there is none in time."""
    end = time.monotonic() + patience
    while True:
        found = call()
        if found:
            return found
        assert time.monotonic() < end, f"nothing within {patience:g} s"
        threading.Event().wait(0.05)
