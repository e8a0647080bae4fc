"""The decision service against bare servers, and against itself without what makes it quick.

Every ratio is measured side by side in this one run: `python -m benchmarks.service`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tests.processes.http import Connection
from tests.processes.service import free_port

from latentbandits import LinearGaussian, mmTS, save
from latentbandits.serving.engine import Engine, EngineSettings
from latentbandits.serving.library import pack
from latentbandits.serving.messages import DecideRequest, RewardRequest
from latentbandits.serving.records import DecisionRow, SessionRow
from latentbandits.serving.stores.memory import MemoryStore
from latentbandits.serving.stores.sqlite import SqliteStore

STATES, FEATURES, ACTIONS = 5, 20, 20
_TICKS = os.sysconf("SC_CLK_TCK")
_SERVE = (
    "import sys; from latentbandits.serving import writer; "
    "writer.MAX_BATCH = int(sys.argv.pop(1)); "
    "from latentbandits.cli import main; raise SystemExit(main(['serve', *sys.argv[1:]]))"
)


def make_model() -> LinearGaussian:
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(STATES, FEATURES, FEATURES)) / 5
    return LinearGaussian(rng.normal(size=(STATES, FEATURES)), 0.5, roots @ roots.swapaxes(1, 2))


def make_features() -> list[list[float]]:
    features: list[list[float]] = np.random.default_rng(1).normal(size=(ACTIONS, FEATURES)).tolist()
    return features


@contextmanager
def running(*command: str | Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server process on a free port, ready to answer."""
    port = free_port()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, *map(str, command), str(port)], env=environment)
    try:
        asyncio.run(_wait(port))
        yield port, process
    finally:
        process.kill()
        process.wait()


async def _wait(port: int) -> None:
    for _ in range(3000):
        connection = Connection(port)
        try:
            await connection.get("/healthz")
            return
        except ConnectionError:
            await asyncio.sleep(0.01)
        finally:
            connection.close()
    raise RuntimeError("the server did not start")


def service(model: Path, *flags: str, batch: int = 256) -> Any:
    return running("-c", _SERVE, str(batch), model, *flags, "--log-level", "warning", "--port")


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def cpu_per_request(port: int, process: subprocess.Popen[bytes], requests: int) -> float:
    """Microseconds of the server's CPU for one `decide`, at eight connections."""
    body = {"session": "s", "features": make_features()}

    async def one(number: int) -> None:
        connection = Connection(port)
        data = json.dumps({**body, "session": f"s{number}"}).encode()
        for _ in range(requests // 8):
            reply = await connection.post("/v1/decide", data)
            assert reply.status == 201, reply.body
        connection.close()

    async def all_() -> None:
        await asyncio.gather(*(one(i) for i in range(8)))

    asyncio.run(all_())  # warm
    before = cpu_seconds(process)
    asyncio.run(all_())
    return (cpu_seconds(process) - before) / (requests // 8 * 8) * 1e6


def http_cost(folder: Path, requests: int) -> list[str]:
    echo = [("-m", "benchmarks.echo", kind) for kind in ("starlette", "fastapi")]
    costs: dict[str, list[float]] = {}
    for _ in range(3):
        for name, command in zip(("Starlette echo", "FastAPI echo"), echo, strict=True):
            with running(*command) as (port, process):
                costs.setdefault(name, []).append(cpu_per_request(port, process, requests))
        for mode in ("none", "counted"):
            with service(folder / "model", "--propensity", mode) as (port, process):
                cost = cpu_per_request(port, process, requests)
                costs.setdefault(f"decide, propensity {mode}", []).append(cost)
    best = {name: min(values) for name, values in costs.items()}
    bare = best["Starlette echo"]
    return [f"{name:<28} {cost:6.0f} us  {cost / bare:5.2f} x Starlette echo"
            for name, cost in best.items()]  # fmt: skip


def engine_cost(rounds: int) -> list[str]:
    """`engine.decide` + `reward` against `policy.decide` + `update` of one session."""
    model, features = make_model(), make_features()
    policy = mmTS(model)
    engine = Engine(MemoryStore(), EngineSettings(propensity="none"))
    with engine.transaction():
        engine.activate(pack(model, "model"))
    rng = np.random.default_rng(2)
    context = np.array([features])
    bare: list[float] = []
    whole: list[float] = []
    for _ in range(5):
        belief = policy.init(1)
        begun = time.process_time()
        for _ in range(rounds):
            decision = policy.decide(belief, context, rng, propensity=False)
            belief = policy.update(belief, context, decision, [1.0])
        bare.append((time.process_time() - begun) / rounds)
        begun = time.process_time()
        for i in range(rounds):
            with engine.transaction():
                decided = engine.decide(DecideRequest(f"s{i % 100}", features=features))
            with engine.transaction():
                engine.reward(RewardRequest(decided.decision_id, 1.0))
        whole.append((time.process_time() - begun) / rounds)
    return [
        f"policy decide + update       {min(bare) * 1e6:6.0f} us",
        f"engine decide + reward       {min(whole) * 1e6:6.0f} us  "
        f"{min(whole) / min(bare):5.2f} x the policy",
    ]


def rate(port: int, connections: int, seconds: float) -> tuple[float, list[float]]:
    """Pairs of decide and reward per second, and the seconds that each request took."""
    times: list[float] = []
    features = make_features()

    async def one(number: int, end: float) -> int:
        connection = Connection(port)
        data = json.dumps({"session": f"c{number}", "features": features}).encode()
        pairs = 0
        while time.perf_counter() < end:
            begun = time.perf_counter()
            reply = await connection.post("/v1/decide", data)
            middle = time.perf_counter()
            told = {"decision_id": reply.json()["decision_id"], "value": 1.0}
            await connection.post("/v1/reward", told)
            times.extend((middle - begun, time.perf_counter() - middle))
            pairs += 1
        connection.close()
        return pairs

    async def all_() -> int:
        end = time.perf_counter() + seconds
        return sum(await asyncio.gather(*(one(i, end) for i in range(connections))))

    return asyncio.run(all_()) / seconds, times


def durable(folder: Path, seconds: float) -> list[str]:
    rates: dict[str, list[float]] = {"one commit for each request": [], "group commit": []}
    single: list[float] = []
    for number in range(3):
        for name, batch in (("one commit for each request", 1), ("group commit", 256)):
            store = f"sqlite:{folder / f'durable-{batch}-{number}.sqlite'}"
            with service(folder / "model", "--store", store, batch=batch) as (port, _):
                rates[name].append(rate(port, 32, seconds)[0])
                if batch > 1:
                    single += rate(port, 1, seconds)[1]
    best = {name: max(values) for name, values in rates.items()}
    alone = best["one commit for each request"]
    lines = [f"{name:<28} {value:6.0f} pairs/s at 32 connections  {value / alone:5.2f} x"
             for name, value in best.items()]  # fmt: skip
    return [*lines, f"p50 at one connection        {statistics.median(single) * 1e3:6.2f} ms"]


def fill(path: Path, sessions: int, model: LinearGaussian) -> None:
    """A store with this many sessions of one rewarded decision each."""
    store = SqliteStore(path, "NORMAL", 100_000)
    row = pack(model, "model")
    engine = Engine(store)
    with engine.transaction():
        engine.activate(row)
        activation = engine.library.active.order
    features = np.array(make_features())[:1].tobytes()
    now = int(time.time() * 1000)
    for start in range(0, sessions, 50_000):
        store.begin()
        for i in range(start, min(start + 50_000, sessions)):
            key = 1 + i * 4
            store.put_session(SessionRow(
                key, f"user-{i:08d}", "policy", row.id, activation, now, 1, 1, 1.0, key + 2,
                b"\0" * 8 * STATES,
            ))  # fmt: skip
            store.add_decision(DecisionRow(
                key + 1, i, key, 1, row.id, "policy", "mmTS", "0", 0, 1, None, features, 0, 0.5,
                "counted", b"\0" * 8 * STATES, None, None, 1.0, key + 2, "applied",
            ))  # fmt: skip
        store.commit()
    store.close()


def size(folder: Path, large: int, seconds: float) -> list[str]:
    lines = []
    results: dict[int, tuple[float, float]] = {}
    for sessions in (1_000, large):
        path = folder / f"size-{sessions}.sqlite"
        fill(path, sessions, make_model())
        each = path.stat().st_size / sessions
        starts = []
        middles = []
        for _ in range(3):
            begun = time.perf_counter()
            with service(folder / "model", "--store", f"sqlite:{path}") as (port, _):
                starts.append(time.perf_counter() - begun)
                middles.append(statistics.median(known_sessions(port, sessions, seconds)))
        results[sessions] = min(starts), min(middles)
        lines.append(
            f"{sessions:>9} sessions  start {min(starts):5.2f} s  p50 {min(middles) * 1e3:5.2f} ms"
            f"  {each:6.0f} bytes each"
        )
    (start, middle), (large_start, large_middle) = results.values()
    lines.append(f"ratios: start {large_start / start:.2f} x, p50 {large_middle / middle:.2f} x")
    return lines


def known_sessions(port: int, sessions: int, seconds: float) -> list[float]:
    """How long `decide` takes for sessions that the store knows and the process does not."""
    features = make_features()
    rng = np.random.default_rng(3)

    async def ask() -> list[float]:
        times = []
        connection = Connection(port)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            body = {"session": f"user-{rng.integers(sessions):08d}", "features": features}
            begun = time.perf_counter()
            reply = await connection.post("/v1/decide", body)
            times.append(time.perf_counter() - begun)
            assert reply.status == 201, reply.body
        connection.close()
        return times

    return asyncio.run(ask())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    quick = parser.parse_args().quick
    requests, rounds, seconds, large = (800, 200, 1.0, 5_000) if quick else (
        8_000, 2_000, 5.0, 1_000_000)  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="latentbandits-bench-"))
    save(make_model(), folder / "model")
    try:
        for title, lines in (
            ("CPU of one decide over HTTP, 20 actions, 20 features, S=5, store in memory",
             lambda: http_cost(folder, requests)),
            ("In process, no HTTP", lambda: engine_cost(rounds)),
            ("Durable: SQLite, synchronous FULL", lambda: durable(folder, seconds)),
            ("Many sessions in the SQLite store", lambda: size(folder, large, seconds)),
        ):  # fmt: skip
            sys.stdout.write(f"{title}\n")
            for line in lines():
                sys.stdout.write(f"  {line}\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
