"""`python -m benchmarks.service_versions`: the service beside that of an earlier commit.

Server processor time of a durable decide + reward pair at 64 connections, of the commit and of
this tree in turns; memory after many sessions; the first decide of a long session after a restart.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tests.processes.http import Connection
from tests.processes.service import RunningService

from latentbandits import LinearGaussian, save

BEFORE = "064b08a"
_CONNECTIONS = 64
_ACTIONS = _FEATURES = 20
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=4_000, help="pairs in each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=0, help="sessions to create, for memory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rng = np.random.default_rng(0)
        model = LinearGaussian(
            rng.normal(size=(5, _FEATURES)), 0.5, np.stack([0.1 * np.eye(_FEATURES)] * 5)
        )
        save(model, folder / "model")
        if arguments.sessions:
            asyncio.run(_memory(folder, arguments.sessions))
            return 0
        old = _checked_out(folder)
        variants = {
            f"commit {BEFORE}": (old, ()),
            "this tree": (None, ()),
            "this tree, no row checksums, no snapshots": (
                None, ("--row-checksums", "false", "--snapshot-rounds", "0"),
            ),
        }  # fmt: skip
        costs: dict[str, list[float]] = {name: [] for name in variants}
        for turn in range(arguments.turns):
            for number, (name, (tree, options)) in enumerate(variants.items()):
                store = f"sqlite:{folder / f'{turn}-{number}.sqlite'}"
                costs[name].append(
                    asyncio.run(_cost(folder, tree, store, options, arguments.pairs))
                )
                sys.stderr.write(f"turn {turn + 1}, {name}: {costs[name][-1]:.0f} us\n")
    base = min(costs[f"commit {BEFORE}"])
    sys.stdout.write("server processor time of a durable decide + reward pair, 64 connections\n")
    for name, values in costs.items():
        sys.stdout.write(f"{name:45} {min(values):7.0f} us  x {min(values) / base:.2f}\n")
    return 0


def _checked_out(folder: Path) -> Path:
    """Return the sources of the earlier commit."""
    archive = folder / "old.tar"
    subprocess.run(["git", "archive", "-o", str(archive), BEFORE], check=True)
    shutil.unpack_archive(archive, folder / "old")
    return folder / "old" / "src"


def _service(
    folder: Path, tree: Path | None, store: str, options: tuple[str, ...]
) -> RunningService:
    service = RunningService(
        folder / "model", "--store", store, "--max-waiting", "1000", *options, folder=folder
    )
    service.tree = tree
    return service


async def _cost(
    folder: Path, tree: Path | None, store: str, options: tuple[str, ...], pairs: int
) -> float:
    """Return the microseconds of processor time that the server spends on one pair."""
    features = np.random.default_rng(1).normal(size=(_ACTIONS, _FEATURES)).tolist()
    with _service(folder, tree, store, options) as service:
        connections = [Connection(service.port, timeout=60.0) for _ in range(_CONNECTIONS)]
        each = pairs // _CONNECTIONS

        async def work(number: int, rounds: int) -> None:
            connection = connections[number]
            for i in range(rounds):
                body = {"session": f"s{number}-{i % 5}", "features": features}
                reply = await connection.post("/v1/decide", body)
                assert reply.status == 201, reply.body
                told = {"decision_id": reply.json()["decision_id"], "value": 0.5}
                reply = await connection.post("/v1/reward", told)
                assert reply.status == 200, reply.body

        await asyncio.gather(*(work(n, 3) for n in range(_CONNECTIONS)))
        begun = _processor(service.pid)
        await asyncio.gather(*(work(n, each) for n in range(_CONNECTIONS)))
        spent = _processor(service.pid) - begun
        for connection in connections:
            connection.close()
    return spent / (each * _CONNECTIONS) * 1e6


def _processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def _memory(folder: Path, sessions: int) -> None:
    """Create many sessions and print the memory of the server."""
    features = np.random.default_rng(1).normal(size=(2, _FEATURES)).round(2).tolist()
    options = ("--synchronous", "NORMAL", "--propensity", "none")
    with _service(folder, None, f"sqlite:{folder / 'm.sqlite'}", options) as service:
        begun = time.monotonic()
        connections = [Connection(service.port, timeout=60.0) for _ in range(4)]
        made = 0
        peak = 0

        async def work(number: int) -> None:
            nonlocal made, peak
            while made < sessions:
                first = made
                made += 100
                body = [{"session": f"u{first + i}", "features": features} for i in range(100)]
                reply = await connections[number].post("/v1/decide", body)
                assert reply.status == 200, reply.body
                if first % 100_000 == 0:
                    peak = max(peak, service.memory())
                    sys.stderr.write(f"{first:,} sessions: {service.memory() / 2**20:.0f} MB\n")

        await asyncio.gather(*(work(n) for n in range(len(connections))))
        memory = max(peak, service.memory())
        sys.stdout.write(
            f"{made:,} sessions created in {time.monotonic() - begun:.0f} s: the server uses "
            f"{service.memory() / 2**20:.0f} MB, {memory / 2**20:.0f} MB at most\n"
        )


if __name__ == "__main__":
    raise SystemExit(main())
