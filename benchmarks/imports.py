"""How long a first policy takes to import in a fresh process, and what it brings along."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from benchmarks._commands import measure_command
from benchmarks.report import Report, Table, Target

REPEATS = 10
STATEMENTS = {"latentbandits": "from latentbandits import mmTS", "numpy": "import numpy"}
HEAVY = ("matplotlib", "polars", "pandas", "sklearn", "starlette", "uvicorn", "rich")
SCRIPT = """
import sys, time, json
start, wall = time.process_time(), time.perf_counter()
{statement}
print(json.dumps([
    time.process_time() - start,
    time.perf_counter() - wall,
    sorted(set(sys.modules) & set({heavy})),
]))
"""


def main() -> Report:
    seconds: dict[str, list[float]] = {package: [] for package in STATEMENTS}
    walls: dict[str, list[float]] = {package: [] for package in STATEMENTS}
    brought: list[str] = []
    for _ in range(REPEATS + 1):  # the first one fills the file cache and is not counted
        for package, statement in STATEMENTS.items():
            script = SCRIPT.format(statement=statement, heavy=HEAVY)
            done = subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=True
            )
            elapsed, wall, heavy = json.loads(done.stdout)
            seconds[package].append(elapsed)
            walls[package].append(wall)
            brought = heavy if package == "latentbandits" else brought
    table = Table(
        f"seconds to import in a fresh process, of {REPEATS}",
        ("package", "processor, best", "processor, median", "wall, best"),
        tuple(
            (package, min(values[1:]), statistics.median(values[1:]), min(walls[package][1:]))
            for package, values in seconds.items()
        ),
    )
    versions = [measure_command(["--version"])[0] for _ in range(REPEATS)]
    targets = (
        Target("latentbandits --version, processor", min(versions), at_most=0.3, unit="s"),
        Target(
            STATEMENTS["latentbandits"], min(seconds["latentbandits"][1:]), at_most=0.25, unit="s"
        ),
        Target(f"modules it brings of {', '.join(HEAVY)}", float(len(brought)), at_most=0, unit=""),
    )
    notes = (f"{STATEMENTS['latentbandits']} brings {', '.join(brought)}",) if brought else ()
    return Report("import time", (table,), targets, notes)
