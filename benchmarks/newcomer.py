"""A newcomer's clock: from a clone to the first verdict and to the first decision of a service.

The installation is timed too, but has no target: it depends on the network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.processes.service import free_port
from tools import drinks

from benchmarks._commands import measure_command
from benchmarks.report import Report, Table, Target
from latentbandits.client import Client

COLUMNS = ["--user", "customer", "--action", "drink", "--reward", "stars"]
ROWS = 100_000


def main() -> Report:
    with tempfile.TemporaryDirectory(prefix="latentbandits-newcomer-") as scratch:
        steps = _first_steps(Path(scratch))
        quick = _quick_fit(Path(scratch))
    install = steps.pop("install")
    verdict = steps["clone"] + steps["fit"]
    table = Table(
        "wall seconds of a newcomer's first steps",
        ("step", "seconds"),
        (*steps.items(), ("install (not counted)", install)),
    )
    targets = (
        Target("clone to first verdict", verdict, at_most=90, unit="s"),
        Target("clone to a served model", verdict + steps["serve"], at_most=120, unit="s"),
        Target(f"fit --quick on {ROWS:,} rows, processor", quick, at_most=15, unit="s"),
    )
    return Report("a newcomer's clock", (table,), targets)


def _first_steps(scratch: Path) -> dict[str, float]:
    """Return the wall seconds of each step, in a new clone with a new environment."""
    clone = scratch / "clone"
    python = clone / ".venv" / "bin" / "python"
    installed = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    seconds = {}

    def step(name: str, *commands: list[object]) -> None:
        begun = time.perf_counter()
        for words in commands:
            folder = clone if clone.exists() else scratch
            subprocess.run(
                [str(word) for word in words],
                cwd=folder,
                env=installed,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        seconds[name] = time.perf_counter() - begun

    step("clone", ["git", "clone", "--quiet", Path(__file__).parents[1], clone])
    install = [python, "-m", "pip", "install", "--quiet", ".[learning,serving]"]
    step("install", [sys.executable, "-m", "venv", ".venv"], install)
    command = [python, "-m", "latentbandits"]
    step("fit", [*command, "fit", "examples/data/drinks.csv", *COLUMNS, "--out", "models/drinks"])
    begun = time.perf_counter()
    port = free_port()
    words = [*command, "serve", "models/drinks", "--store", "sqlite:s.sqlite", "--port", port]
    with (scratch / "service.log").open("wb") as log:
        served = subprocess.Popen(
            [str(word) for word in words], cwd=clone, env=installed, stdout=log, stderr=log
        )
    try:
        with Client(f"http://127.0.0.1:{port}", timeout=10.0, retries=10, deadline=120.0) as client:
            client.decide("ann")  # is repeated until the service answers
        seconds["serve"] = time.perf_counter() - begun
    finally:
        served.terminate()
        served.wait(20)
    return seconds


def _quick_fit(scratch: Path) -> float:
    """Return the processor seconds of `fit --quick`."""
    log = scratch / "log.csv"
    log.write_text(drinks.table(n_customers=ROWS // 20, n_drinks=20))
    out = scratch / "quick"
    words = ["fit", str(log), *COLUMNS, "--quick", "--out", str(out)]
    return measure_command(words)[0]
