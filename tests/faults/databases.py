"""A PostgreSQL that is killed, frozen, or cuts connections while they commit."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import psycopg

from tests.faults.load import read_log, saved_models
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.postgresql import Server, find_binaries, postgresql_server
from tests.processes.service import RunningService

_DRAIN = 1.0


def run(folder: Path, full: bool) -> list[Result]:
    binaries = find_binaries()
    if binaries is None:
        return [Result("PostgreSQL fails", "NO POSTGRESQL TO TEST WITH", False)]
    seconds = 30.0 if full else 3.0
    (name,) = saved_models(folder, 1)
    with postgresql_server(binaries) as server:
        service = RunningService(
            folder / "models" / name, "--store", server.url, "--request-timeout", "5",
            "--drain", str(_DRAIN), folder=folder,
        )  # fmt: skip
        with service:
            return [
                asyncio.run(_cut(service, server, seconds)),
                asyncio.run(_killed(service, server)),
                asyncio.run(_frozen(service, server)),
            ]


class _Client:
    """Decides with request ids and keeps what each request was answered."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port, timeout=12.0)
        self.answers: dict[str, tuple[int, str]] = {}  # request id: status, decision id
        self.slowest = 0.0
        self.refusals = b""  # the bodies of all that was refused

    async def decide(self, request_id: str) -> int:
        begun = time.monotonic()
        body = {"session": f"s{hash(request_id) % 7}", "request_id": request_id}
        try:
            reply = await self._connection.post("/v1/decide", body)
        except ConnectionError:
            self.answers[request_id] = (0, "")
            return 0
        self.slowest = max(self.slowest, time.monotonic() - begun)
        decided = reply.json().get("decision_id", "") if reply.status == 201 else ""
        self.refusals += b"" if reply.status == 201 else reply.body
        self.answers[request_id] = (reply.status, decided)
        return reply.status

    async def status(self, path: str) -> int:
        try:
            reply = await self._connection.get(path)
        except ConnectionError:
            return 0
        self.refusals += b"" if reply.status == 200 else reply.body
        return reply.status

    def close(self) -> None:
        self._connection.close()


async def _cut(service: RunningService, server: Server, seconds: float) -> Result:
    """Terminate the service's connections again and again, many of them while they commit."""
    clients = [_Client(service.port) for _ in range(6)]
    end = time.monotonic() + seconds

    async def work(number: int) -> None:
        i = 0
        while time.monotonic() < end:
            await clients[number].decide(f"cut-{number}-{i}")
            i += 1

    def cut() -> int:
        rng, times = random.Random(1), 0
        with psycopg.connect(server.url, autocommit=True) as connection:
            while time.monotonic() < end:
                time.sleep(rng.uniform(0.02, 0.2))
                result = connection.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                ).fetchone()
                times += 0 if result is None else int(result[0])
        return times

    cutting = asyncio.get_running_loop().run_in_executor(None, cut)
    await asyncio.gather(*(work(n) for n in range(len(clients))))
    times = await cutting
    answers = {k: v for client in clients for k, v in client.answers.items()}
    kept = await _kept(server.url)
    counts: dict[int, int] = {}
    for status, _ in answers.values():
        counts[status] = counts.get(status, 0) + 1
    lies = sum(status == 503 and request in kept for request, (status, _) in answers.items())
    lost = sum(
        status == 201 and kept.get(request) != decided
        for request, (status, decided) in answers.items()
    )
    unknown = [request for request, (status, _) in answers.items() if status == 504]
    resolver = _Client(service.port)
    for _ in range(50):  # wait for a connection
        if await resolver.status("/readyz") == 200:
            break
        await asyncio.sleep(0.1)
    for request in unknown:
        await resolver.decide(request)
    later = await _kept(server.url)
    unresolved = sum(later.get(r) != resolver.answers[r][1] for r in unknown)
    resolver.close()
    for client in clients:
        client.close()
    shown = ", ".join(f"{n} x {status}" for status, n in sorted(counts.items()))
    return Result(
        "PostgreSQL cuts connections, also while they commit",
        f"{times} connections cut, {len(answers)} decisions asked for: {shown}; {lies} that were "
        f"503 and are in the store, {lost} acknowledged and lost, {unresolved} of {len(unknown)} "
        "unknown ones not resolved by their request id",
        times > 10 and not (lies or lost or unresolved) and set(counts) <= {201, 503, 504},
    )


async def _kept(url: str) -> dict[str, str]:
    """Return request and decision ids of the store."""
    results: dict[str, str] = {}
    for event in await asyncio.get_running_loop().run_in_executor(None, read_log, url):
        row = event.decision
        if row.request_id is not None:
            results[row.request_id] = f"{row.order:016x}{row.token:016x}"
    return results


async def _killed(service: RunningService, server: Server) -> Result:
    loop = asyncio.get_running_loop()
    client = _Client(service.port)
    await client.decide("before")
    await loop.run_in_executor(None, server.kill)
    while_down = [await client.decide(f"down-{i}") for i in range(10)]
    log, ready = await client.status("/v1/log"), await client.status("/readyz")
    await loop.run_in_executor(None, server.start)
    begun = time.monotonic()
    while await client.status("/readyz") != 200 and time.monotonic() - begun < 10:
        await asyncio.sleep(0.05)
    after = [await client.decide(f"up-{i}") for i in range(10)]
    client.close()
    secrets = (b"tester", b"127.0.0.1", server.url.rpartition(":")[2].partition("/")[0].encode())
    told = [secret.decode() for secret in secrets if secret in client.refusals]
    return Result(
        "PostgreSQL is killed and started again",
        f"while down: decide {sorted(set(while_down))}, /v1/log {log}, /readyz {ready}; "
        f"afterwards: decide {sorted(set(after))}, without a restart of the service; "
        f"{len(told)} parts of the database's address in the errors",
        set(while_down) <= {503, 504}
        and (log, ready) == (503, 503)
        and set(after) == {201}
        and not told,
    )


async def _frozen(service: RunningService, server: Server) -> Result:
    """SIGSTOP: connections stay open and nothing is ever answered."""
    client = _Client(service.port)
    await client.decide("warm")
    server.freeze()
    begun = time.monotonic()
    statuses: list[int] = []
    first = asyncio.create_task(client.decide("frozen-0"))
    await asyncio.sleep(2.0)
    other = _Client(service.port)
    ready = await other.status("/readyz")
    statuses.append(await first)
    seconds = time.monotonic() - begun
    waiting = [asyncio.create_task(_Client(service.port).decide(f"stuck-{i}")) for i in range(5)]
    await asyncio.sleep(0.2)
    code, ended = await asyncio.get_running_loop().run_in_executor(None, service.terminate, 30.0)
    statuses += await asyncio.gather(*waiting)
    server.thaw()
    service.start()
    again = _Client(service.port)
    recovered = await again.decide("frozen-0")
    for one in (client, other, again):
        one.close()
    return Result(
        "PostgreSQL hangs (SIGSTOP)",
        f"decide answered {statuses[0]} after {seconds:.1f} s, /readyz {ready} after 2 s; SIGTERM "
        f"ended with code {code} within {ended:.1f} s (drain {_DRAIN:g} s); the same request "
        f"answered {recovered} afterwards",
        statuses[0] in (503, 504) and seconds < 12 and ready == 503 and ended < _DRAIN + 10
        and recovered == 201,
    )  # fmt: skip
