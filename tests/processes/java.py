"""A Java for Spark: the machine's, or one from the package registries."""

from __future__ import annotations

import os
import shutil
import subprocess


def find_java() -> bool:
    """Whether there is a Java; installs one where that is possible."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return True
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(
            ["apt-get", "install", "-y", "--no-install-recommends", "openjdk-17-jre-headless"],
            env=environment, capture_output=True, timeout=300, check=False,
        )  # fmt: skip
    return shutil.which("java") is not None
