"""The real service in a process of its own, on a loopback port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

_RUN = "from latentbandits.cli import main; raise SystemExit(main())"
_SHIFTED = "import time; now = time.time_ns; time.time_ns = lambda: now() + {} * 10**9; " + _RUN


def command(*arguments: str | Path) -> list[str]:
    """The command line, run by this Python."""
    return [sys.executable, "-c", _RUN, *map(str, arguments)]


def run_command(
    *arguments: str | Path, timeout: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end and keep what it says."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=timeout, check=False, **options
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RunningService:
    """Started on entry and killed on exit; `kill` and `start` again as often as needed.

    Without another policy it plays mmTS: `auto` would tune one at each start (`tuned` asks so).
    Without keys it takes administrators' requests from this machine, unless `insecure` is False.
    """

    def __init__(
        self,
        *arguments: str | Path,
        folder: Path,
        tuned: bool = False,
        insecure: bool = True,
        **options: Any,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        chosen = tuned or {"--policy", "--demo", "--config"} & set(map(str, arguments))
        self._arguments = arguments if chosen else (*arguments, "--policy", "mmTS")
        self._insecure = insecure and "--keys" not in arguments
        self._options = options
        self._log = folder / f"service-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.clock = 0  # seconds that the clock of the next start is ahead
        self.tree: Path | None = None  # sources of another version to run

    def __enter__(self) -> RunningService:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def _command(self) -> list[str]:
        words = command("serve", *self._arguments, "--port", str(self.port))
        if self._insecure and self.tree is None:  # earlier versions do not know the flag
            words.append("--insecure-admin")
        if self.clock:
            words[2] = _SHIFTED.format(self.clock)
        return words

    def start(self, wait: float = 60.0) -> float:
        """Start it and wait until it is ready; the seconds that took."""
        begun = time.perf_counter()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LATENTBANDITS_")}
        environment["OPENBLAS_NUM_THREADS"] = "1"
        if self.tree is not None:
            environment["PYTHONPATH"] = str(self.tree)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdout=log, stderr=log, env=environment, **self._options,
            )  # fmt: skip
        while time.perf_counter() - begun < wait:
            if self.process.poll() is not None:
                raise RuntimeError(f"the service ended: {self.log()}")
            if self.ready():
                return time.perf_counter() - begun
            time.sleep(0.01)
        raise RuntimeError(f"the service was not ready after {wait} s: {self.log()}")

    def ready(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 1) as s,
        ):
            s.sendall(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            return s.recv(100).startswith(b"HTTP/1.1 200")
        return False

    def kill(self) -> None:
        """Kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self, wait: float = 15.0) -> tuple[int, float]:
        """SIGTERM; the exit code and the seconds until it ended."""
        assert self.process is not None
        begun = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(wait), time.perf_counter() - begun

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def memory(self) -> int:
        """Bytes of memory in use."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def descriptors(self) -> int:
        """The number of open files and connections."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=10.0, **options)
