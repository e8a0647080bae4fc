"""Run a command of the package in a process of its own, and measure that process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def measure_command(words: list[str], source: Path | None = None) -> tuple[float, float]:
    """Run `latentbandits WORDS`; return the processor seconds and the peak GiB of its process.

    `source` is a folder with another version of the package. A small process starts the command,
    because Linux counts the memory of a process into the peak of those that it starts.
    """
    command = [sys.executable, "-m", "latentbandits", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    small = [sys.executable, __file__, *command]
    done = subprocess.run(small, stdout=subprocess.PIPE, env=environment, check=True)
    code, seconds, peak = json.loads(done.stdout)
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}")
    return seconds, peak


def _measure(command: list[str]) -> tuple[int, float, float]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1:])))  # noqa: T201
