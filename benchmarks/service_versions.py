"""`python -m benchmarks.service_versions`: the service beside that of an earlier commit.

Server processor time of a durable decide + reward pair at 64 connections, and the median time of
a request at one connection, of the commit and of this tree in turns; memory after many sessions;
processor time of the service and of PostgreSQL where that is the store.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import uvloop
from tests.processes.http import Connection
from tests.processes.postgresql import find_binaries, postgresql_server
from tests.processes.service import RunningService

from benchmarks.service import FEATURES, make_model
from benchmarks.throughput import OLD, load, old_source, pairs
from latentbandits import save

_CONNECTIONS = 64
_BLOCKS, _BLOCK_PAIRS = 12, 10  # of each service at one connection, in every turn
_NEITHER = ("--row-checksums", "false", "--snapshot-rounds", "0")
_NAMES = {
    "old": "the earlier commit",
    "both": "this tree",
    "neither": "this tree, no row checksums, no snapshots",
}


def compare_versions() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=OLD, help=f"the earlier commit, {OLD}")
    parser.add_argument("--pairs", type=int, default=1_000, help="pairs in each turn")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--sessions", type=int, default=0, help="sessions to create, for memory")
    parser.add_argument("--postgresql", action="store_true", help="the cost of a PostgreSQL store")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save(make_model(), folder / "model")
        if arguments.sessions:
            asyncio.run(_memory(folder, arguments.sessions))
            return 0
        if arguments.postgresql:
            return _postgresql(folder, arguments.turns, arguments.pairs)
        trees: dict[str, tuple[Path | None, tuple[str, ...]]] = {
            "old": (old_source(folder, arguments.commit), ()),
            "both": (None, ()),
            "neither": (None, _NEITHER),
        }
        with ExitStack() as stack:
            services = {
                name: stack.enter_context(_service(folder, tree, f"{name}.sqlite", options))
                for name, (tree, options) in trees.items()
            }
            _compare(services, arguments.turns, arguments.pairs)
    return 0


def _compare(services: dict[str, RunningService], turns: int, n_pairs: int) -> None:
    """Load the services in turns, and print the ratios to the first.

    All run at once and take short turns, so that what disturbs the machine disturbs them alike:
    the median of the ratios of a turn, and the ratio of the least costs, are both printed.
    """
    costs: dict[str, list[float]] = {name: [] for name in services}
    alone: dict[str, list[float]] = {name: [] for name in services}
    for turn in range(-1, turns):  # the first turn warms up
        order = list(services) if turn % 2 else list(reversed(services))
        for name in order:
            service = services[name]
            begun = processor_seconds(service.pid)
            times = _load(service, _CONNECTIONS, n_pairs)
            spent = processor_seconds(service.pid) - begun
            if turn >= 0:
                costs[name].append(spent / len(times) * 2e6)
        for name, median in _lone(services).items():
            if turn >= 0:
                alone[name].append(median * 1e3)
        sys.stderr.write(f"turn {turn + 1} of {turns}\n")
    _show(f"processor time of a durable pair, {_CONNECTIONS} connections, us", costs)
    _show("p50 of a request, one connection, ms", alone)


def _lone(services: dict[str, RunningService]) -> dict[str, float]:
    """Return the median seconds of a request at one connection, of blocks in turns."""
    times: dict[str, list[float]] = {name: [] for name in services}
    for block in range(_BLOCKS):
        for name in services if block % 2 else reversed(services):
            times[name] += _load(services[name], 1, _BLOCK_PAIRS)
    return {name: statistics.median(values) for name, values in times.items()}


def _show(title: str, measured: dict[str, list[float]]) -> None:
    base = measured["old"]
    sys.stdout.write(f"{title:58}   least  median   ratio of least  median ratio\n")
    for name, values in measured.items():
        ratio = statistics.median(a / b for a, b in zip(values, base, strict=True))
        sys.stdout.write(
            f"  {_NAMES[name]:56} {min(values):7.4g} {statistics.median(values):7.4g} "
            f"{min(values) / min(base):16.2f} {ratio:13.2f}\n"
        )


def _load(service: RunningService, connections: int, n_pairs: int) -> list[float]:
    """Return the seconds of each request."""
    return uvloop.run(load(service.port, pairs, connections, 2 * max(1, n_pairs // connections)))


def _service(
    folder: Path, tree: Path | None, store: str, options: tuple[str, ...]
) -> RunningService:
    service = RunningService(
        folder / "model", "--store", f"sqlite:{folder / store}", "--max-waiting", "1000",
        *options, folder=folder,
    )  # fmt: skip
    service.tree = tree
    return service


def processor_seconds(pid: int) -> float:
    """Return the seconds of processor time of a process, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _postgresql(folder: Path, turns: int, n_pairs: int) -> int:
    """Print the processor time of the service and of PostgreSQL for a pair."""
    binaries = find_binaries()
    if binaries is None:
        sys.stderr.write("PostgreSQL is not installed\n")
        return 1
    with (
        postgresql_server(binaries) as database,
        RunningService(
            folder / "model", "--store", database.url, "--max-waiting", "1000", folder=folder
        ) as service,
    ):
        costs: dict[str, list[float]] = {"the service": [], "PostgreSQL": []}
        for turn in range(-1, turns):  # the first turn warms up
            processes = {"the service": [service.pid], "PostgreSQL": database.pids()}
            begun = {name: sum(map(processor_seconds, pids)) for name, pids in processes.items()}
            times = _load(service, _CONNECTIONS, n_pairs)
            for name, pids in processes.items():
                spent = sum(map(processor_seconds, pids)) - begun[name]
                if turn >= 0:
                    costs[name].append(spent / len(times) * 2e6)
        for name, values in costs.items():
            sys.stdout.write(
                f"{name}: {min(values):.0f} us of processor time a pair at least, "
                f"{statistics.median(values):.0f} us in the median, {_CONNECTIONS} connections\n"
            )
    return 0


async def _memory(folder: Path, sessions: int) -> None:
    """Create many sessions and print the memory of the server."""
    features = np.random.default_rng(1).normal(size=(2, FEATURES)).round(2).tolist()
    options = ("--synchronous", "NORMAL", "--propensity", "none")
    with _service(folder, None, "m.sqlite", options) as service:
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
    raise SystemExit(compare_versions())
