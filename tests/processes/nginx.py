"""A real nginx of our own: in a temporary folder, on loopback ports, with a certificate."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes.packages import install

_SECONDS = 20.0


def find_nginx() -> str | None:
    """Return where nginx is; installs it where that is possible."""
    if _look() is None:
        install("nginx-light")
    return _look()


def _look() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def make_certificate(name: str, folder: Path) -> tuple[Path, Path]:
    """Make a certificate for a host name, signed by itself; returns it and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@contextmanager
def nginx(program: str, configuration: str, port: int, folder: Path) -> Iterator[None]:
    """Run nginx with a file for its conf.d until the end; it listens on `port` then."""
    folder.mkdir()
    built = subprocess.run([program, "-V"], check=True, capture_output=True, text=True).stderr
    kinds = [kind.replace("-", "_") for kind in re.findall(r"--http-([a-z-]+)-temp-path", built)]
    places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    site, main, log = folder / "site.conf", folder / "nginx.conf", folder / "error.log"
    site.write_text(configuration)
    main.write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {log};\nevents {{}}\n"
        f"http {{\naccess_log off;\n{places}include {site};\n}}\n"
    )
    process = subprocess.Popen([program, "-c", str(main), "-e", str(log)])
    try:
        end = time.monotonic() + _SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"nginx does not listen: {log.read_text()}")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(_SECONDS)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
