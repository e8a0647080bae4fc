"""The peak memory of a simulation of a million runs, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.report import Report, Table, Target

RUNS, HORIZON = 1_000_000, 100
POLICIES = ("mTS", "mUCB", "UCB1")
SCRIPT = f"""
import json, resource
import latentbandits as lb
from latentbandits.environments import Synthetic

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

policies = {{"mTS": lb.mTS, "mUCB": lb.mUCB, "UCB1": lb.UCB1(10)}}
before = peak()
results = lb.simulate(policies, Synthetic(0.05), n_runs={{runs}}, horizon={HORIZON}, seed=0)
print(json.dumps([before, peak(), {{name: r.regret.mean for name, r in results.items()}}]))
"""
KIB_PER_GIB = 2**20


def main() -> Report:
    rows, peaks = [], {}
    for runs in (RUNS // 100, RUNS // 10, RUNS):
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.replace("{runs}", str(runs))],
            capture_output=True,
            text=True,
            check=True,
        )
        before, peak, _ = json.loads(done.stdout)
        scale = KIB_PER_GIB * (1024 if sys.platform == "darwin" else 1)
        peaks[runs] = peak / scale
        rows.append((f"{runs:,}", before / scale, peaks[runs], time.perf_counter() - start))
    table = Table(
        f"simulate({', '.join(POLICIES)}) at horizon {HORIZON}, in GiB",
        ("runs", "before", "peak", "seconds"),
        tuple(rows),
    )
    what = f"peak of {RUNS:,} runs, {len(POLICIES)} policies, horizon {HORIZON}"
    return Report(
        "memory of a simulation", (table,), (Target(what, peaks[RUNS], at_most=4, unit="GiB"),)
    )
