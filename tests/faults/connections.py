"""Clients that send without end, never read, or say what HTTP does not allow."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from pathlib import Path

from latentbandits import save
from tests.faults.load import arms
from tests.faults.table import Result
from tests.processes.http import Connection
from tests.processes.service import RunningService, run_command

_MEGABYTE = 2**20
_GROWTH = 32 * _MEGABYTE
_HEAD = b"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def run(folder: Path, full: bool) -> list[Result]:
    save(arms(0), folder / "models" / "arms")
    key_file = folder / "keys.toml"
    run_command("key", "web", "--keys", key_file)
    results = []
    arguments = (folder / "models" / "arms", "--send-timeout", "2", "--body-timeout", "3")
    with RunningService(*arguments, "--keys", key_file, folder=folder) as service:
        results.append(_trailers(service, 10_000 if full else 2_000, 8.0 if full else 2.0))
    with RunningService(*arguments, folder=folder) as service:
        results += [_deaf(service, 200 if full else 40), _hosts(service), _limits(service)]
        results += [_pipelined(service), _upgrades(service), _vanishing(service, full)]
        results.append(_large_headers(service))
    return results


def _trailers(service: RunningService, each: int, seconds: float) -> Result:
    """Chunked bodies whose trailers never end, behind a key that is not there."""
    before = service.memory()
    peak, sent = before, 0
    line = b"".join(b"x-trailer-%06d: %s\r\n" % (i, b"y" * 80) for i in range(each))
    end = time.monotonic() + seconds
    statuses = []
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
            try:
                connection.sendall(_HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
                for _ in range(50):
                    connection.sendall(line)
                    sent += len(line)
                    peak = max(peak, service.memory())
                    if time.monotonic() > end:
                        break
            except OSError:
                pass
            statuses.append(_status(connection))
    grown = peak - before
    return Result(
        f"chunked trailers without end, no key ({each:,} at a time)",
        f"{sent / _MEGABYTE:.0f} MB sent on {len(statuses)} connections, answered "
        f"{sorted(set(statuses) - {0})}; memory "
        f"grew by {grown / _MEGABYTE:.1f} MB",
        grown < _GROWTH
        and set(statuses) <= {401, 431, 0}
        and max(statuses) > 0
        and service.ready(),
    )


def _status(connection: socket.socket) -> int:
    try:
        head = connection.recv(64)
    except OSError:
        return 0
    return int(head.split(b" ")[1]) if head.startswith(b"HTTP/") else 0


def _deaf(service: RunningService, connections: int) -> Result:
    """Clients that ask for large answers and never read them."""
    before = service.memory()
    requested = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 40
    held = []
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", service.port), timeout=10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(requested)
        held.append(client)
    peak, begun = service.memory(), time.monotonic()
    served = int(asyncio.run(_one_decision(service)))  # by now it has accepted all of them
    some = left = _open(service, held)  # on a slow machine the first are closed already
    while time.monotonic() - begun < 12 and left > 0:
        served += asyncio.run(_one_decision(service))
        peak = max(peak, service.memory())
        time.sleep(0.1)
        left = _open(service, held)
    seconds = time.monotonic() - begun
    for client in held:
        client.close()
    grown = peak - before
    return Result(
        f"{connections} clients that never read 40 answers each",
        f"all but {left} closed within {seconds:.1f} s (send_timeout 2 s); "
        f"{served} others served meanwhile; memory grew by {grown / _MEGABYTE:.1f} MB",
        some > 0 and left == 0 and grown < connections * 512 * 1024 + _GROWTH and served > 0,
    )


def _open(service: RunningService, clients: list[socket.socket]) -> int:
    """The connections of these clients that the service has not closed."""
    ports = {client.getsockname()[1] for client in clients}
    count = 0
    for line in Path(f"/proc/{service.pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ours, theirs = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
        closed = fields[9] == "0"  # the inode: no process has it open
        count += ours == service.port and theirs in ports and not closed
    return count


async def _one_decision(service: RunningService) -> bool:
    connection = Connection(service.port)
    reply = await connection.post("/v1/decide", {"session": "s"})
    connection.close()
    return reply.status == 201


def ask(port: int, request: bytes, answers: int = 1) -> bytes:
    """Send bytes, and read until `answers` bodies have come or the service closes."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(request)
        try:
            while part := connection.recv(65536):
                received += part
                if len(re.findall(rb"HTTP/1\.1 [2-5]", received)) >= answers and received.endswith(
                    b"}"
                ):
                    break
        except OSError:
            pass
    return received


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", answer)]


def _hosts(service: RunningService) -> Result:
    bodies = {
        "missing": b"", "empty": b"host:\r\n", "blank": b"host:   \r\n",
        "doubled": b"host: localhost\r\nhost: localhost\r\n",
        "two names": b"host: localhost\r\nhost: evil.example\r\n",
    }  # fmt: skip
    wrong = []
    for name, headers in bodies.items():
        for target in (b"GET /healthz", b"GET /v1/models", b"GET /", b"GET /play/"):
            got = statuses(ask(service.port, target + b" HTTP/1.1\r\n" + headers + b"\r\n"))
            if got != [400]:
                wrong.append(f"{name} {target.decode()}: {got}")
    evil = ask(
        service.port, b"GET /play/ HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n"
    )
    if b"//" in b"".join(re.findall(rb"(?i)location: .*", evil)) or b"evil" in evil:
        wrong.append("/play/ redirects to another host")
    return Result(
        "Host headers missing, empty or doubled; /play/ with another host's name",
        f"{4 * len(bodies)} requests answered 400; no redirect to another host; "
        f"{len(wrong)} wrong{f', for instance {wrong[0]}' if wrong else ''}",
        not wrong,
    )


def _limits(service: RunningService) -> Result:
    limits = ["0000000019000000", "0" * 4301, "1" * 4301, "1001", "0", "-1", "1e3", "%D9%A1", "007"]
    got = []
    for limit in limits:
        request = f"GET /v1/log?limit={limit} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        got += statuses(ask(service.port, request.encode()))
    return Result(
        "`limit` with leading zeros, of 4,301 digits, beyond the bound",
        f"{len(limits)} requests: answered {sorted(set(got))}",
        len(got) == len(limits) and set(got) <= {400, 422},
    )


def _pipelined(service: RunningService) -> Result:
    body = b'{"session": "pipe"}'
    one = _HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    few = statuses(ask(service.port, one * 20, 20))
    before = service.memory()
    many = statuses(ask(service.port, one * 5_000, 5_000))
    grown = service.memory() - before
    return Result(
        "requests sent without waiting for answers: 20, then 5,000",
        f"20 answered {sorted(set(few))}; of 5,000 the service answered {len(many)} and closed; "
        f"memory grew by {grown / _MEGABYTE:.1f} MB",
        few == [201] * 20 and len(many) < 5_000 and grown < _GROWTH,
    )


def _upgrades(service: RunningService) -> Result:
    body = b'{"session": "h2c"}'
    head = (
        _HEAD
        + b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    )
    post = head + b"content-length: %d\r\n\r\n" % len(body) + body
    get = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    chunked = head + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    got = statuses(ask(service.port, post + get + chunked + post, 4))
    return Result(
        "`Upgrade: h2c` on GET and POST, on one connection",
        f"answered {got}, in HTTP/1.1",
        got == [201, 200, 201, 201],
    )


def _vanishing(service: RunningService, full: bool) -> Result:
    """Clients that leave at every moment of a request."""
    body = b"[%s]" % b",".join([b'{"session": "gone"}'] * 50)
    request = _HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    count = 0
    for cut in range(1, len(request) + 1, 7 if full else 61):
        for reset in (False, True):
            client = socket.create_connection(("127.0.0.1", service.port), timeout=5)
            client.sendall(request[:cut])
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            count += 1
    for path in (b"/", b"/openapi.json", b"/v1/overview", b"/metrics", b"/v1/log"):
        for _ in range(5):
            client = socket.create_connection(("127.0.0.1", service.port), timeout=5)
            client.sendall(b"GET " + path + b" HTTP/1.1\r\nhost: localhost\r\n\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            count += 1
    time.sleep(0.3)
    alive = service.ready()
    log = service.log()
    return Result(
        "clients that disappear at every moment of a request",
        f"{count} of them; {log.count('Traceback')} tracebacks in the log",
        alive and "Traceback" not in log,
    )


def _large_headers(service: RunningService) -> Result:
    before = service.memory()
    lines = b"".join(b"x-%d: y\r\n" % i for i in range(1_000))
    long = b"x: " + b"y" * 200_000 + b"\r\n"
    url = b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
    got = [
        statuses(ask(service.port, _HEAD + lines + b"\r\n")),
        statuses(ask(service.port, _HEAD + long + b"\r\n")),
        statuses(ask(service.port, url)),
        statuses(ask(service.port, b"\r\n" * 60_000)),
    ]
    grown = service.memory() - before
    return Result(
        "1,000 headers, one of 200,000 bytes, an address of 100,000, 60,000 empty lines",
        f"answered {got}; memory grew by {grown / _MEGABYTE:.1f} MB",
        all(len(g) == 1 and g[0] in (400, 414, 431) for g in got) and grown < _GROWTH,
    )
