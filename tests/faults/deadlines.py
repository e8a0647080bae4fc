"""Clients behind a wire that trickles, drops and resets: each call ends by its deadline."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from latentbandits import save
from latentbandits.client import AsyncClient, Client
from latentbandits.serving.engine.values import Decided
from tests.faults.load import arms
from tests.faults.table import Result
from tests.processes.service import RunningService

_DEADLINES = (0.1, 0.2, 0.4)  # seconds
_AT_ONCE = 8
_FAULTS = ("trickle", "drop", "reset", "lose", "half", "late")


def run(folder: Path, full: bool) -> list[Result]:
    save(arms(0), folder / "model")
    calls = 1000 if full else 100
    with RunningService(folder / "model", folder=folder) as service:
        return [_attack(service, kind, calls) for kind in ("Client", "AsyncClient")]


class _Call(NamedTuple):
    session: str
    decided: Decided
    beyond: float  # seconds that it took more than its deadline


def _attack(service: RunningService, kind: str, calls: int) -> Result:
    with _bad_wire(service.port) as (url, done):
        asked = _with_threads if kind == "Client" else _with_tasks
        made = asked(url, [f"{kind} {i}" for i in range(calls)])
    with Client(service.url, timeout=30.0) as client:
        rounds = Counter(entry.session for entry in client.entries())
    in_time = sum(call.beyond <= 0.05 for call in made)
    latest = max(call.beyond for call in made)
    answered = [call for call in made if not call.decided.fallback]
    lost = sum(rounds[call.session] != 1 for call in answered)
    twice = sum(rounds[call.session] > 1 for call in made)
    faults = ", ".join(f"{done[fault]} x {fault}" for fault in _FAULTS)
    return Result(
        f"a wire that trickles, drops and resets, {kind}",
        f"{len(made)} calls with deadlines of {', '.join(f'{x:g}' for x in _DEADLINES)} s, "
        f"{faults}, {done['pass']} passed: {in_time} ended by their deadline and 50 ms, the latest "
        f"{max(0.0, latest) * 1000:.0f} ms after it; {len(answered)} answered and the others got "
        f"the default; {lost} answered but not made, {twice} made twice",
        in_time >= 0.999 * calls
        and latest <= 0.25
        and len(made) == calls
        and 0 < len(answered) < calls
        and lost == twice == 0
        and all(done[fault] for fault in _FAULTS),
    )


def _with_threads(url: str, sessions: list[str]) -> list[_Call]:
    with ExitStack() as stack, ThreadPoolExecutor(_AT_ONCE) as pool:
        clients = [
            stack.enter_context(Client(url, timeout=seconds / 2, deadline=seconds))
            for seconds in _DEADLINES
        ]

        def ask(i: int) -> _Call:
            begun = time.monotonic()
            decided = clients[i % len(clients)].decide(sessions[i], default="0")
            taken = time.monotonic() - begun
            return _Call(sessions[i], decided, taken - _DEADLINES[i % len(clients)])

        return list(pool.map(ask, range(len(sessions))))


def _with_tasks(url: str, sessions: list[str]) -> list[_Call]:
    n = _AT_ONCE + 1  # a multiple of the number of deadlines
    deadlines = [_DEADLINES[i % len(_DEADLINES)] for i in range(n)]
    # Made before the loop runs: each reads the certificates of the machine, which takes 20 ms.
    clients = [AsyncClient(url, timeout=seconds / 2, deadline=seconds) for seconds in deadlines]

    async def ask_some(i: int) -> list[_Call]:
        """One after the other: as many as these run at once."""
        made = []
        async with clients[i] as client:
            for session in sessions[i::n]:
                begun = time.monotonic()
                decided = await client.decide(session, default="0")
                made.append(_Call(session, decided, time.monotonic() - begun - deadlines[i]))
        return made

    async def ask_all() -> list[_Call]:
        return [call for part in await asyncio.gather(*map(ask_some, range(n))) for call in part]

    return asyncio.run(ask_all())


@contextmanager
def _bad_wire(port: int) -> Iterator[tuple[str, Counter[str]]]:
    """The address of a proxy to a port, and how often it did what to a request."""
    done: Counter[str] = Counter()
    rng = random.Random(0)
    loop = asyncio.new_event_loop()
    talking: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(_talk(reader, writer, port, rng, done))
        talking.add(task)
        task.add_done_callback(talking.discard)

    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", 0, backlog=256))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def stop() -> None:
        server.close()
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)

    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", done
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _talk(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    port: int,
    rng: random.Random,
    done: Counter[str],
) -> None:
    """Pass requests on, one after the other, until one of the faults ends the connection."""
    to_service, from_client = None, writer.transport.get_extra_info("socket")
    try:
        with suppress(OSError, asyncio.IncompleteReadError):
            from_service, to_service = await asyncio.open_connection("127.0.0.1", port)
            while True:
                request = await _message(reader)
                fault = rng.choice(("pass", *_FAULTS))
                done[fault] += 1
                if fault == "drop":  # and say nothing, until the client gives up
                    await reader.read()
                    return
                to_service.write(request)
                answer = await _message(from_service)
                if fault == "lose":
                    await reader.read()
                    return
                if fault == "reset":
                    writer.write(answer[: rng.randrange(len(answer))])
                    linger = struct.pack("ii", 1, 0)
                    from_client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return
                if fault == "half":  # an answer whose rest never comes
                    writer.write(answer[: rng.randrange(len(answer))])
                    await reader.read()
                    return
                if fault == "late":
                    await asyncio.sleep(rng.uniform(0, 0.3))
                if fault == "trickle":
                    for i in range(len(answer)):
                        writer.write(answer[i : i + 1])
                        await writer.drain()
                        await asyncio.sleep(0.01)
                else:
                    writer.write(answer)
    finally:
        writer.close()
        if to_service is not None:
            to_service.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Return a request or an answer as it came: its head, and as much body as that names."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    length = next((int(value) for name, _, value in fields if name == b"content-length"), 0)
    return head + await reader.readexactly(length)
