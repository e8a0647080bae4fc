"""The peak memory of a simulation of a million runs, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.report import Report, Table, Target

RUNS, HORIZON = 1_000_000, 100
POLICIES = ("mTS", "mUCB", "UCB1")
SCRIPT = """
import json, pathlib, resource, sys, time
import latentbandits as lb
from latentbandits.environments import Synthetic

def peak_gib():
    status = pathlib.Path("/proc/self/status")
    if status.exists():  # what getrusage says of a young process may be its parent's
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
    unit = 2**30 if sys.platform == "darwin" else 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

policies = {"mTS": lb.mTS, "mUCB": lb.mUCB, "UCB1": lb.UCB1(10)}
before = peak_gib()
lb.simulate(policies, Synthetic(0.05), n_runs=RUNS, horizon=HORIZON, seed=0)
print(json.dumps([before, peak_gib(), time.process_time()]))
"""


def main() -> Report:
    rows = []
    for runs in (RUNS // 100, RUNS // 10, RUNS):
        script = SCRIPT.replace("RUNS", str(runs)).replace("HORIZON", str(HORIZON))
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        rows.append((f"{runs:,}", *json.loads(done.stdout)))
    table = Table(
        f"runs of {', '.join(POLICIES)} at horizon {HORIZON}",
        ("runs", "GiB before", "GiB at the peak", "processor seconds"),
        tuple(rows),
    )
    what = f"peak of {RUNS:,} runs, {len(POLICIES)} policies, horizon {HORIZON}"
    return Report("memory of a simulation", (table,), (Target(what, rows[-1][2], None, 4, "GiB"),))
