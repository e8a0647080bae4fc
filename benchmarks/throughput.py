"""CPU of the service at 64 connections: against a bare echo, and against commit 064b08a."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.report import Cell, Report, Table, Target
from benchmarks.service import cpu_seconds, make_features, make_model, running
from latentbandits import save

CONNECTIONS, EACH, REPEATS = 64, 60, 3
OLD = "064b08a"
_NEITHER = ("--snapshot-rounds", "0", "--row-checksums", "false")
_SERVE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from latentbandits.cli import main; "
    "raise SystemExit(main(['serve', *sys.argv[1:]]))"
)
Maker = Callable[[int], Callable[[bytes], bytes]]


class Cost(NamedTuple):
    """Microseconds of the server's CPU for a request, and the median time to its answer."""

    microseconds: float
    median_ms: float


class _Client(asyncio.Protocol):
    """Sends a request, waits for its answer, sends the next; few microseconds each."""

    def __init__(self, count: int, make: Callable[[bytes], bytes], done: asyncio.Future) -> None:
        self._left, self._make, self._done = count, make, done
        self._buffer = b""
        self._times: list[float] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._send(b"")

    def _send(self, last: bytes) -> None:
        self._begun = time.perf_counter()
        self._transport.write(self._make(last))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not end or len(body) < int(length):
            return
        assert head[9:10] == b"2", self._buffer
        self._buffer = b""
        self._times.append(time.perf_counter() - self._begun)
        self._left -= 1
        if self._left:
            self._send(body)
        else:
            self._transport.close()
            self._done.set_result(self._times)


def _request(path: bytes, body: bytes) -> bytes:
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % path
    return b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)


def decides(number: int) -> Callable[[bytes], bytes]:
    body = json.dumps({"session": f"s{number}", "features": make_features()}).encode()
    return lambda last: _request(b"/v1/decide", body)


def pairs(number: int) -> Callable[[bytes], bytes]:
    """A decide, then its reward, and so on."""
    decide = decides(number)(b"")

    def make(last: bytes) -> bytes:
        if b'"propensity"' not in last:
            return decide
        told = {"decision_id": json.loads(last)["decision_id"], "value": 1.0}
        return _request(b"/v1/reward", json.dumps(told).encode())

    return make


async def load(port: int, maker: Maker, connections: int, each: int) -> list[float]:
    loop = asyncio.get_running_loop()
    waiting = []
    for number in range(connections):
        done: asyncio.Future[list[float]] = loop.create_future()
        make = maker(number)
        await loop.create_connection(lambda m=make, d=done: _Client(each, m, d), "127.0.0.1", port)
        waiting.append(done)
    return [seconds for times in await asyncio.gather(*waiting) for seconds in times]


def measure(
    port: int, process: subprocess.Popen[bytes], maker: Maker, connections: int, each: int
) -> Cost:
    uvloop.run(load(port, maker, connections, max(2, each // 4 * 2)))  # warm
    before = cpu_seconds(process)
    times = sorted(uvloop.run(load(port, maker, connections, each)))
    cost = (cpu_seconds(process) - before) / len(times)
    return Cost(cost * 1e6, times[len(times) // 2] * 1e3)


def old_source(folder: Path, commit: str = OLD) -> Path:
    """The library as it was at an earlier commit."""
    root = Path(__file__).parents[1]
    packed = subprocess.run(
        ["git", "archive", commit, "src"], cwd=root, capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return folder / "src"


def main() -> Report:
    folder = Path(tempfile.mkdtemp(prefix="latentbandits-bench-"))
    try:
        save(make_model(), folder / "model")
        return _report(folder, old_source(folder), Path(__file__).parents[1] / "src")
    finally:
        shutil.rmtree(folder)


def _report(folder: Path, old: Path, new: Path) -> Report:
    results: dict[str, list[Cost]] = {}
    for number in range(REPEATS):  # in turns, so that each meets the machine as the others do
        with running("-m", "benchmarks._echo", "starlette") as (port, process):
            cost = measure(port, process, decides, CONNECTIONS, EACH)
            results.setdefault("Starlette echo", []).append(cost)
        for mode in ("none", "counted"):
            with _service(new, folder, "--propensity", mode) as (port, process):
                cost = measure(port, process, decides, CONNECTIONS, EACH)
                results.setdefault(f"decide, propensity {mode}, memory", []).append(cost)
        for name, source, flags in (
            (f"pair, {OLD}", old, ()),
            ("pair, neither checksums nor snapshots", new, _NEITHER),
            ("pair, checksums and snapshots", new, ()),
        ):
            store = f"sqlite:{folder / f'{number}-{name[6:]}.sqlite'}"
            with _service(source, folder, "--store", store, *flags) as (port, process):
                cost = measure(port, process, pairs, CONNECTIONS, EACH)
                results.setdefault(f"{name}, {CONNECTIONS} connections", []).append(cost)
                cost = measure(port, process, pairs, 1, 4 * EACH)
                results.setdefault(f"{name}, 1 connection", []).append(cost)
    best = {name: Cost(*map(min, zip(*costs, strict=True))) for name, costs in results.items()}
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, cost.microseconds, cost.median_ms) for name, cost in best.items()
    )

    def ratio(one: str, other: str) -> float:
        return best[one].microseconds / best[other].microseconds

    many, alone = f"{CONNECTIONS} connections", "1 connection"
    before = f"pair, {OLD}, {many}"
    neither = f"pair, neither checksums nor snapshots, {many}"
    both = f"pair, checksums and snapshots, {many}"
    one = best[f"pair, checksums and snapshots, {alone}"].median_ms
    columns = ("server", "microseconds of CPU", "p50, ms")
    echo = ratio("decide, propensity counted, memory", "Starlette echo")
    return Report(
        "Requests that wait together",
        (Table("A request of 20 actions with 20 features, mmTS, S=5", columns, rows),),
        (
            Target("decide with counted propensities / echo", echo, at_most=2.5),
            Target(f"durable / {OLD}, neither", ratio(neither, before), at_most=0.6),
            Target(f"durable / {OLD}, both", ratio(both, before), at_most=0.75),
            Target(
                f"p50 at one connection / {OLD}",
                one / best[f"pair, {OLD}, {alone}"].median_ms,
                at_most=1.0,
            ),
        ),
    )


def _service(source: Path, folder: Path, *flags: str) -> object:
    words = (
        "-c",
        _SERVE,
        source,
        folder / "model",
        "--policy",
        "mmTS",
        *flags,
        "--log-level",
        "warning",
        "--port",
    )
    return running(*words)


if __name__ == "__main__":
    from rich.console import Console

    main().show(Console())
    sys.exit(0)
