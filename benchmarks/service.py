"""The decision service against bare servers, and against itself without what makes it quick."""

from __future__ import annotations

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
from typing import Any, NamedTuple

import msgspec
import numpy as np
from tests.processes.http import Connection
from tests.processes.service import free_port

from benchmarks.report import Cell, Report, Table, Target
from latentbandits import LinearGaussian, mmTS, save
from latentbandits.serving.engine.engine import Engine, EngineSettings
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.sessions import OrderSequence
from latentbandits.serving.engine.statistics import STATISTICS, Statistics, encode_totals
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.records import DecisionRow, RewardRow, SessionRow
from latentbandits.serving.stores.sqlite import MemoryStore, SqliteStore

STATES, FEATURES, ACTIONS = 5, 20, 20
REQUESTS, ROUNDS, SECONDS, SESSIONS = 4_000, 1_000, 3.0, 1_000_000
REPEATS = 3  # of everything; the best counts: what others do to the machine only ever adds
_TICKS = os.sysconf("SC_CLK_TCK")
_SERVE = (
    "import sys; from latentbandits.serving.engine import writer; "
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
        asyncio.run(_wait(port, process))
        yield port, process
    finally:
        process.kill()
        process.wait()


async def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers, as long as it takes on a machine that is busy."""
    while process.poll() is None:
        connection = Connection(port)
        try:
            await connection.get("/healthz")
            return
        except ConnectionError:
            await asyncio.sleep(0.01)
        finally:
            connection.close()
    raise RuntimeError(f"the server ended with code {process.returncode} and did not answer")


def service(model: Path, *flags: str, batch: int = 256) -> Any:
    options = ("--policy", "mmTS", *flags, "--log-level", "warning", "--port")
    return running("-c", _SERVE, str(batch), model, *options)


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


class Measured(NamedTuple):
    table: Table
    targets: tuple[Target, ...]


def http_cost(folder: Path) -> Measured:
    costs: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        for kind in ("Starlette + msgspec echo", "FastAPI + Pydantic echo"):
            with running("-m", "benchmarks._echo", kind.split()[0].lower()) as (port, process):
                costs.setdefault(kind, []).append(cpu_per_request(port, process, REQUESTS))
        for mode in ("none", "counted"):
            with service(folder / "model", "--propensity", mode) as (port, process):
                cost = cpu_per_request(port, process, REQUESTS)
                costs.setdefault(f"decide, propensity {mode}", []).append(cost)
    best = {name: min(values) for name, values in costs.items()}
    bare, pydantic, plain, _ = best.values()
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, cost, cost / bare) for name, cost in best.items()
    )
    title = "CPU of one decide over HTTP: 20 actions, 20 features, mmTS, S=5, store in memory"
    return Measured(
        Table(title, ("server", "microseconds", "x echo"), rows),
        (
            Target("decide / Starlette echo, CPU", plain / bare, at_most=2.5),
            Target("decide / FastAPI echo, CPU", plain / pydantic, at_most=1.0),
        ),
    )


def engine_cost() -> Measured:
    """`engine.decide` + `reward` against `policy.decide` + `update` of one session, both from the
    numbers of a request; and, for what it is worth, against a policy that is handed an array.
    """
    model, features = make_model(), make_features()
    policy = mmTS(model)
    engine = Engine(MemoryStore(), EngineSettings(policy="mmTS", propensity="none"))
    with engine.transaction():
        engine.activate(pack(model, "model"))
    rng = np.random.default_rng(2)
    lists, array = [features], np.array([features])
    beliefs = {"lists": [policy.init(1)] * 100, "array": [policy.init(1)] * 100}

    def alone(kind: str, context: Any, i: int) -> None:
        believed = beliefs[kind]
        decision = policy.decide(believed[i], context, rng, propensity=False)
        believed[i] = policy.update(believed[i], context, decision, [1.0])

    def served(i: int) -> None:
        with engine.transaction():
            decided = engine.decide(DecisionRequest(f"s{i}", features=features))
        with engine.transaction():
            engine.reward(RewardReport(decided.decision_id, 1.0))

    best = np.full(3, np.inf)
    for _ in range(2 * REPEATS):
        seconds = np.zeros(3)
        for i in range(ROUNDS):  # in turns, so that each finds the processor as the others left it
            times = [time.process_time()]
            alone("lists", lists, i % 100)
            times.append(time.process_time())
            alone("array", array, i % 100)
            times.append(time.process_time())
            served(i % 100)
            times.append(time.process_time())
            seconds += np.diff(times)
        best = np.minimum(best, seconds / ROUNDS)
    own, from_array, ours = best.tolist()
    rows: tuple[tuple[Cell, ...], ...] = (
        ("policy.decide + policy.update", own * 1e6, 1.0),
        ("the same, given an array", from_array * 1e6, from_array / own),
        ("engine.decide + engine.reward", ours * 1e6, ours / own),
    )
    return Measured(
        Table("In process, store in memory", ("call", "microseconds of CPU", "x policy"), rows),
        (Target("engine / policy, decide + learn", ours / own, at_most=2.0),),
    )


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


def durable(folder: Path) -> Measured:
    rates: dict[str, list[float]] = {"a commit for each request": [], "group commit": []}
    middles: list[float] = []
    for number in range(REPEATS):
        for name, batch in zip(rates, (1, 256), strict=True):
            store = f"sqlite:{folder / f'durable-{batch}-{number}.sqlite'}"
            flags = ("--store", store, "--propensity", "none")
            with service(folder / "model", *flags, batch=batch) as (port, _):
                rates[name].append(rate(port, 32, SECONDS)[0])
                if batch > 1:
                    middles.append(statistics.median(rate(port, 1, SECONDS)[1]))
    best = {name: max(values) for name, values in rates.items()}
    alone, grouped = best.values()
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, value, value / alone) for name, value in best.items()
    )
    title = "Durable (SQLite, synchronous FULL): decide + reward at 32 connections"
    return Measured(
        Table(title, ("how", "pairs per second", "x"), rows),
        (
            Target("group commit / a commit for each request", grouped / alone, at_least=2.0),
            Target(
                "p50 of a request at one connection", min(middles) * 1e3, at_most=2.0, unit="ms"
            ),
        ),
    )


def fill(path: Path, sessions: int, model: LinearGaussian) -> None:
    """A store with this many sessions of one rewarded decision each."""
    store = SqliteStore(path, "NORMAL", 100_000)
    row = pack(model, "model")
    engine = Engine(store, EngineSettings(policy="mmTS"))
    with engine.transaction():
        engine.activate(row)
        activation = engine.library.active.order
    features = np.array(make_features())[:1].tobytes()
    now = int(time.time() * 1000)
    orders = OrderSequence(store)
    totals = Statistics()
    for start in range(0, sessions, 50_000):
        store.begin()
        for i in range(start, min(start + 50_000, sessions)):
            key, decision, reward = orders.next(), orders.next(), orders.next()
            session = SessionRow(
                key=key,
                name=f"user-{i:08d}",
                group="main",
                model=row.id,
                activation=activation,
                started=now,
                seen=now,
                rounds=1,
                rewards=1,
                reward_sum=1.0,
                last_order=reward,
                probabilities=b"\0" * 8 * STATES,
            )
            store.add_session(session)
            decided = DecisionRow(
                order=decision,
                token=i,
                session=key,
                round=1,
                time=now,
                model=row.id,
                group="main",
                policy="mmTS",
                action="0",
                index=0,
                n_actions=1,
                actions=None,
                features=features,
                state=0,
                propensity=0.5,
                propensity_kind="counted",
                probabilities=b"\0" * 8 * STATES,
                request_id=None,
                fingerprint=None,
            )
            rewarded = RewardRow(
                order=reward,
                decision=decision,
                session=key,
                applies_at=reward,
                value=1.0,
                kind="reward",
                status="applied",
                time=now,
                event_id=None,
                who="",
            )
            store.add_decisions([decided])
            store.add_rewards([rewarded])
            totals.count("started")
            totals.move_share(row.id, [], [0.0] * STATES)
            totals.decided(decided, [0.0] * STATES)
            before = msgspec.structs.replace(session, rewards=0, reward_sum=0.0)
            totals.rewarded(before, decided, 1.0)
        store.commit()
    store.begin()  # as the engine keeps them: to count them takes a minute
    store.put_note(f"{STATISTICS}{store.node}", encode_totals(totals))
    store.commit()
    store.close()


def size(folder: Path) -> Measured:
    rows: list[tuple[Cell, ...]] = []
    for sessions in (1_000, SESSIONS):
        path = folder / f"size-{sessions}.sqlite"
        fill(path, sessions, make_model())
        starts, middles = [], []
        for _ in range(REPEATS):
            begun = time.perf_counter()
            with service(folder / "model", "--store", f"sqlite:{path}") as (port, _):
                starts.append(time.perf_counter() - begun)
                middles.append(statistics.median(known_sessions(port, sessions, SECONDS)))
        each = path.stat().st_size / sessions
        rows.append((f"{sessions:,}", min(starts), min(middles) * 1e3, each))
    (_, start, middle, _), (_, large_start, large_middle, _) = rows
    title = "Sessions in the SQLite store, one rewarded decision of 20 features each"
    return Measured(
        Table(title, ("sessions", "start, s", "p50, ms", "bytes each"), tuple(rows)),
        (
            Target("start with a million / a thousand", _ratio(large_start, start), at_most=1.5),
            Target("p50 with a million / a thousand", _ratio(large_middle, middle), at_most=1.5),
        ),
    )


def _ratio(one: Cell, other: Cell) -> float:
    return float(one or 0.0) / float(other or 1.0)


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


def main() -> Report:
    folder = Path(tempfile.mkdtemp(prefix="latentbandits-bench-"))
    save(make_model(), folder / "model")
    try:
        measured = [http_cost(folder), engine_cost(), durable(folder), size(folder)]
    finally:
        shutil.rmtree(folder)
    return Report(
        "The decision service",
        tuple(one.table for one in measured),
        tuple(target for one in measured for target in one.targets),
    )


if __name__ == "__main__":
    from rich.console import Console

    main().show(Console())
