"""Run a command of the package in a process of its own, and measure that process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def measure_command(words: list[str], source: Path | None = None) -> tuple[float, float]:
    """Run `latentbandits WORDS`; return the processor seconds and the peak GiB of its process.

    `source` is a folder with another version of the package.
    """
    command = [sys.executable, "-m", "latentbandits", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20
