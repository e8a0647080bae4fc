"""Bodies without measure and clients without haste."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

from latentbandits import save
from tests.faults.load import arms
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService

_MEGABYTE = 2**20
_GROWTH = 32 * _MEGABYTE


def run(folder: Path, full: bool) -> list[Result]:
    size, slow = (100, 500) if full else (20, 100)
    save(arms(0), folder / "models" / "arms")
    with RunningService(
        folder / "models" / "arms", "--header-timeout", "2", "--body-timeout", "2", folder=folder
    ) as service:
        asyncio.run(_served(service, 50))
        before = service.memory()
        announced = _send(service.port, size, chunked=False)
        chunked = _send(service.port, size, chunked=True)
        grown = service.memory() - before
        sizes = Result(
            f"{size} MB body, with a length and chunked without one",
            f"answered {announced} and {chunked}; memory grew by {grown / _MEGABYTE:.1f} MB",
            announced == chunked == 413 and grown < _GROWTH,
        )
        before = service.memory()
        statuses, seconds, served, peak = asyncio.run(_crawl(service, slow))
        grown = peak - before
        refused = sum(status == 408 for status in statuses)
        return [
            sizes,
            Result(
                f"{slow} slow connections",
                f"{refused} answered 408 within {seconds:.1f} s; {served} others served "
                f"meanwhile; memory grew by {grown / _MEGABYTE:.1f} MB",
                refused == slow and served > 0 and grown < _GROWTH,
            ),
        ]


def _send(port: int, megabytes: int, *, chunked: bool) -> int:
    """Push a large body until the service answers; the status of its answer."""
    block = b"x" * _MEGABYTE
    kind = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % (megabytes << 20)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(
            b"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\n" + kind + b"\r\n\r\n"
        )
        for _ in range(megabytes):
            data = b"%x\r\n%s\r\n" % (len(block), block) if chunked else block
            try:
                connection.sendall(data)
            except OSError:  # it has closed: its answer may still be there
                break
        try:
            head = connection.recv(100)
        except OSError:
            return 0
    return int(head.split(b" ")[1]) if head else 0


async def _served(service: RunningService, requests: int) -> int:
    connection = Connection(service.port)
    done = 0
    for i in range(requests):
        reply = await connection.post("/v1/decide", {"session": f"s{i}"})
        done += reply.status == 201
    connection.close()
    return done


async def _crawl(service: RunningService, connections: int) -> tuple[list[int], float, int, int]:
    begun = time.perf_counter()
    slow = asyncio.gather(*(_slow(service.port, i) for i in range(connections)))
    served, peak = 0, 0
    while not slow.done():
        served += await _served(service, 5)
        peak = max(peak, service.memory())
        await asyncio.sleep(0.05)
    return await slow, time.perf_counter() - begun, served, peak


async def _slow(port: int, number: int) -> int:
    """A byte now and then: of the headers, or of the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\n"
    if number % 2:
        head += b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
    writer.write(head)
    answer = asyncio.ensure_future(reader.read(100))
    for _ in range(60):
        done, _ = await asyncio.wait([answer], timeout=0.3)
        if done:
            break
        writer.write(b"x")
    writer.close()
    try:
        return int((await answer).split(b" ")[1])
    except (OSError, IndexError):
        return 0
