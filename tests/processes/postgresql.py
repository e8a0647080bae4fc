"""A real PostgreSQL server of our own: in a temporary folder, on a loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 60


def find_binaries() -> Path | None:
    """Where initdb and postgres are; installs them where that is possible."""
    found = _look()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(
            ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"],
            env=environment, capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        found = _look()
    return found


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


@contextmanager
def postgresql(binaries: Path) -> Iterator[str]:
    """The URL of an empty database, while the block lasts."""
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
        subprocess.run([*control, "-o", options, "-l", log, "start"], **run)  # type: ignore[call-overload]
        try:
            yield f"postgresql://tester@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **run)  # type: ignore[call-overload]
