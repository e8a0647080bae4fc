"""A real PostgreSQL server of our own: in a temporary folder, on a loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes.packages import install

_SECONDS = 60


def find_binaries() -> Path | None:
    """Where initdb and postgres are; installs them where that is possible."""
    result = _look()
    if result is None:
        install("postgresql")
        result = _look()
    return result


def _look() -> Path | None:
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


def _user() -> dict[str, str]:
    """PostgreSQL refuses to run as root: then it runs as a user without rights."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": name}
    return {}


class Server:
    """A running PostgreSQL, to be stopped, killed and frozen."""

    def __init__(self, url: str, data: Path, control: Callable[..., None]) -> None:
        self.url = url
        self._data = data
        self._control = control

    def start(self) -> None:
        self._control("start")

    def kill(self) -> None:
        """Stop it without a shutdown, as a crash does."""
        self._control("stop", "-m", "immediate")

    def freeze(self) -> None:
        """Stop all its processes in their tracks: connections stay open and say nothing."""
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGCONT)

    def pids(self) -> list[int]:
        """The server's processes."""
        main = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        return [main, *map(int, children)]


@contextmanager
def postgresql(binaries: Path) -> Iterator[str]:
    """The URL of an empty database, while the block lasts."""
    with postgresql_server(binaries) as server:
        yield server.url


@contextmanager
def postgresql_server(binaries: Path) -> Iterator[Server]:
    """Run a server with an empty database while the block lasts."""
    identity = _user()
    with tempfile.TemporaryDirectory(prefix="latentbandits-pg-") as folder:
        if identity:
            shutil.chown(folder, identity["user"])
        data = Path(folder, "data")
        run = {
            "capture_output": True,
            "timeout": _SECONDS,
            "check": True,
            "cwd": folder,
            **identity,
        }
        subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8",
             "--no-locale", "--no-sync"], **run,
        )  # type: ignore[call-overload]  # fmt: skip
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=on -c max_connections=50"
        control = [binaries / "pg_ctl", "-D", data, "-w", "-t", "30"]
        log = Path(folder, "log")

        def act(*words: str) -> None:
            subprocess.run([*control, "-o", options, "-l", log, *words], **run)  # type: ignore[call-overload]

        server = Server(f"postgresql://tester@127.0.0.1:{port}/postgres", data, act)
        server.start()
        try:
            yield server
        finally:
            with suppress(OSError, subprocess.SubprocessError):
                server.thaw()
                server.kill()
