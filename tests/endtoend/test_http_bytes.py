"""Bytes on a connection that no HTTP client would send, and a port that is taken."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from latentbandits import save
from tests.faults.connections import ask, statuses
from tests.faults.load import arms
from tests.processes.service import RunningService, run_command

_HEAD = b"POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("bytes")
    save(arms(0), folder / "arms")
    store = f"sqlite:{folder / 's.sqlite'}"
    with RunningService(folder / "arms", "--store", store, folder=folder) as running:
        yield running


@pytest.mark.parametrize(
    "behind",
    [
        b"this is not HTTP\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 100_000,
        b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 200,
    ],
    ids=["malformed", "headers", "proxy", "pipelined"],
)
def test_bytes_behind_a_request_are_not_its_answer(service: RunningService, behind: bytes) -> None:
    """The request is being answered when they come; a decide that commits is told so."""
    body = json.dumps([{"session": f"s{i}"} for i in range(100)]).encode()
    received = b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(_HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        time.sleep(0.002)
        connection.sendall(behind)
        while not received.partition(b"\r\n\r\n")[2]:
            received += connection.recv(65536)
    assert statuses(received)[0] == 200


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"chunked, chunked", b"identity"])
def test_other_transfer_codings_are_refused(service: RunningService, coding: bytes) -> None:
    chunks = b'13\r\n{"session": "gzip"}\r\n0\r\n\r\n'
    answer = ask(service.port, _HEAD + b"transfer-encoding: " + coding + b"\r\n\r\n" + chunks)
    assert statuses(answer)[0] == (501 if coding == b"gzip, chunked" else 400)


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\x16\x03\x01"], ids=["none", "empty", "tls"])
def test_a_connection_without_a_request_leaves_no_traceback(
    service: RunningService, sent: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(sent)
    assert (
        statuses(ask(service.port, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"))[0] == 200
    )
    assert "Traceback" not in service.log()


def test_a_port_in_use_is_one_sentence(service: RunningService, tmp_path: Path) -> None:
    done = run_command("serve", "--demo", "--port", str(service.port))
    assert done.returncode == 2
    assert f"port {service.port}: Address already in use" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
