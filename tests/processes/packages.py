"""Programs that the tests run and a machine may lack."""

import os
import shutil
import subprocess


def install(package: str) -> None:
    """Install a Debian package, where that is possible; elsewhere nothing happens."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "-y", "--no-install-recommends", package],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
