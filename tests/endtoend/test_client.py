"""The clients against the real service, over a wire that loses answers."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from latentbandits import save
from latentbandits.client import AsyncClient, Client, NoAnswerError, ServiceError
from latentbandits.loop.kept_log import KeptLog, ServiceSource, merged, reward_table
from latentbandits.serving.export import frame
from latentbandits.serving.http.messages import Log
from tests.faults.load import arms
from tests.processes.service import RunningService


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


class LossyWire:
    """Passes requests on to a port; of every two answers it loses the first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.lost = 0
        self._count = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._pass(client)

    def _pass(self, client: socket.socket) -> None:
        """One request and its answer, or the end of the connection in place of it."""
        with client, socket.create_connection(("127.0.0.1", self._port), timeout=5) as service:
            client.settimeout(5)
            request = b""
            while not _is_whole(request):
                request += client.recv(1 << 20)
            service.sendall(
                request.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nconnection: close\r\n", 1)
            )
            answer = b""
            while part := service.recv(1 << 20):
                answer += part
            self._count += 1
            if self._count % 2:
                self.lost += 1  # the service has done it, and nobody hears of it
            else:
                client.sendall(answer)

    def close(self) -> None:
        self._server.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("client")
    save(arms(0), folder / "models" / "arms")
    save(arms(1), folder / "models" / "next")
    store = f"sqlite:{folder / 's.sqlite'}"
    with RunningService(folder / "models" / "arms", "--store", store, folder=folder) as running:
        yield running


@pytest.fixture
def wire(service: RunningService) -> Iterator[LossyWire]:
    wire = LossyWire(service.port)
    yield wire
    wire.close()


def test_a_lost_answer_never_acts_twice(service: RunningService, wire: LossyWire) -> None:
    with Client(wire.url, timeout=5) as lossy, Client(service.url, timeout=5) as client:
        decided = lossy.decide("ann")
        assert client.session("ann").round == 1
        assert lossy.reward(decided.decision_id, 0.5).status in ("applied", "duplicate")
        assert client.session("ann").rewards == 1
        swaps = len(client.models().swaps)
        lossy.activate("next", "restarted")
        assert len(client.models().swaps) == swaps + 1
        client.decide("ann")
        assert lossy.forget("ann").sessions == 2
        with pytest.raises(ServiceError, match="404"):
            client.session("ann")
        assert wire.lost >= 4


def test_a_repeated_forget_spares_the_session_that_began_since(service: RunningService) -> None:
    with Client(service.url) as client:
        client.decide("bob")
        first = client.forget("bob", request_id="forget bob")
        client.decide("bob")
        assert client.forget("bob", request_id="forget bob") == first
        assert client.session("bob").round == 1
        with pytest.raises(ServiceError, match="409 conflict"):
            client.forget("carl", request_id="forget bob")
        assert client.forget("bob").sessions == 1


def test_batches_and_the_log(service: RunningService) -> None:
    with Client(service.url, timeout=10) as client:
        requests = [{"session": f"batch {i % 7}"} for i in range(150)]
        decided = client.decide_many([*requests, {"session": "x", "actions": ["9"]}])
        assert len(decided) == 151
        assert isinstance(decided[-1], ServiceError)
        made = [one for one in decided if not isinstance(one, ServiceError)]
        told = client.reward_many([(one.decision_id, 0.25) for one in made])
        assert {one.status for one in told if not isinstance(one, ServiceError)} == {"applied"}
        assert len(told) == 150
        ids = [entry.decision_id for entry in client.entries()]
        assert {one.decision_id for one in made} <= set(ids)
        assert client.catalogue().prior
        assert client.actions().decisions == len(ids)
        assert client.overview().counts["decisions"] >= 150

    async def talk() -> None:
        async with AsyncClient(service.url, timeout=10) as other:
            many = await other.decide_many(requests[:3])
            assert len(many) == 3
            page = await other.log(limit=2)
            assert len(page.decisions) == 2
            assert [entry.decision_id async for entry in other.entries()][: len(ids)] == ids

    asyncio.run(talk())


PATIENCE = 4.0  # seconds: a busy machine answers late; `python -m tests.faults deadlines` measures


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does this on each connection, after the first bytes came."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def talk(client: socket.socket) -> None:
            with client, suppress(OSError):
                client.recv(1 << 16)
                answer(client)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=talk, args=server.accept()[:1], daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def trickle(text: bytes) -> Callable[[socket.socket], None]:
    def send(client: socket.socket) -> None:
        for i in range(len(text)):
            client.sendall(text[i : i + 1])
            time.sleep(0.02)

    return send


def both(url: str, call: str, *words: Any, options: dict[str, Any], **named: Any) -> list[Any]:
    """What a call returns or raises, and the seconds it took, of either client."""

    async def awaited() -> Any:
        async with AsyncClient(url, **options) as client:
            return await getattr(client, call)(*words, **named)

    def waited() -> Any:
        with Client(url, **options) as client:
            return getattr(client, call)(*words, **named)

    results = []
    for act in (waited, lambda: asyncio.run(awaited())):
        begun = time.monotonic()
        try:
            result = act()
        except (ServiceError, RuntimeError) as error:
            result = error
        results.append((result, time.monotonic() - begun))
    return results


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 201 Created\r\n" + b"x-filler: y\r\n" * 50,
        b"HTTP/1.1 201 Created\r\ncontent-length: 500\r\n\r\n" + b" " * 499,
    ],
    ids=["headers", "body"],
)
def test_an_answer_that_trickles_is_not_waited_for(text: bytes) -> None:
    with answering(trickle(text)) as url:
        options = {"timeout": 0.2, "retries": 0}
        for decided, seconds in both(url, "decide", "ann", default="red", options=options):
            assert decided.fallback
            assert 0.2 <= seconds < PATIENCE  # it trickles for ten seconds
        options = {"timeout": 0.1, "retries": 9, "deadline": 0.3}
        for problem, seconds in both(url, "decide", "ann", options=options):
            assert isinstance(problem, NoAnswerError)
            assert 0.2 <= seconds < PATIENCE


def test_a_name_that_is_looked_up_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def slowly(*words: Any, **named: Any) -> Any:
        time.sleep(PATIENCE + 1)
        return look_up(*words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    with Client("http://localhost:1", timeout=0.2, retries=0) as client:
        begun = time.monotonic()
        assert client.decide("ann", default="red").fallback
        assert time.monotonic() - begun < PATIENCE


@pytest.mark.slow
def test_a_burst_waits_for_free_connections(service: RunningService) -> None:
    async def burst(**options: Any) -> list[Any]:
        async with AsyncClient(service.url, **options) as client:
            asked = [client.decide(f"burst {i}", default="0") for i in range(600)]
            return await asyncio.gather(*asked)

    assert not any(decided.fallback for decided in asyncio.run(burst(timeout=30.0, retries=9)))
    begun = time.monotonic()
    late = asyncio.run(burst(timeout=0.3, retries=0))
    assert time.monotonic() - begun < 3 * PATIENCE
    assert len(late) == 600


def test_an_answer_without_end_is_refused_once() -> None:
    asked = []

    def endless(client: socket.socket) -> None:
        asked.append(1)
        client.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            client.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")

    with answering(endless) as url:
        options = {"timeout": 10.0, "max_answer": 10**6}
        for problem, _ in both(url, "models", options=options):
            assert isinstance(problem, NoAnswerError)
            assert "more than 1000000 bytes (max_answer)" in str(problem)
        assert len(asked) == 2
        for decided, _ in both(url, "decide", "ann", default="red", options=options):
            assert decided.fallback


def test_a_closed_client_says_so(service: RunningService) -> None:
    client = Client(service.url, timeout=5)
    client.decide("closed")
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match=r"the client of http://\S+ is closed: make a new one"):
        client.decide("closed", default="0")

    async def talk() -> None:
        async with AsyncClient(service.url, timeout=5) as other:
            await other.decide("closed")
        with pytest.raises(RuntimeError, match="is closed: make a new one"):
            await other.decide("closed")

    asyncio.run(talk())


def test_a_client_of_another_event_loop_says_so(service: RunningService) -> None:
    client = AsyncClient(service.url, timeout=5)

    async def talk() -> None:
        await asyncio.gather(*[client.decide(f"loop {i}") for i in range(3)])

    with asyncio.Runner() as first:
        first.run(talk())
        for act in (talk, client.close):
            advice = pytest.raises(RuntimeError, match="make an AsyncClient in each event loop")
            with advice, asyncio.Runner() as second:
                second.run(act())
        first.run(talk())
        first.run(client.close())


def test_a_client_in_threads_a_running_loop_and_a_fork(service: RunningService) -> None:
    with Client(service.url, timeout=5) as client:
        decided: list[str] = []

        def ask(name: str) -> None:
            decided.extend(client.decide(f"{name} {i}").decision_id for i in range(20))

        threads = [threading.Thread(target=ask, args=(f"thread {i}",)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(decided)) == 160

        async def talk() -> int:
            return client.decide("in a loop").round

        assert asyncio.run(talk()) == 1
        child = os.fork()
        if child == 0:
            rounds = 0
            with suppress(BaseException):
                rounds = client.decide("forked").round
            os._exit(0 if rounds == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.decide("forked").round == 2


@pytest.mark.parametrize("option", ["timeout", "deadline", "retries"])
def test_options_that_make_no_sense(option: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match=f"{option} must be .*; got -1"):
            kind("http://127.0.0.1:1", **{option: -1})  # type: ignore[arg-type]


class RewardsBetweenPages:
    """A client that reads short pages of the log, and reports a reward after each."""

    def __init__(self, client: Client, waiting: list[str]) -> None:
        self._client = client
        self._waiting = waiting
        self.ends: set[str] = set()

    def log(self, since: str, **options: Any) -> Log:
        page = self._client.log(since, limit=4, **options)
        if self._waiting:
            self._client.reward(self._waiting.pop(0), 0.75)
        self.ends.add(page.end)
        return page

    def forgotten(self, decisions: list[str]) -> list[str]:
        return self._client.forgotten(decisions)


def test_a_kept_log_misses_no_reward_between_two_pages(
    service: RunningService, tmp_path: Path
) -> None:
    with Client(service.url, timeout=10) as client:
        made = [client.decide("paged").decision_id for _ in range(12)]
        busy = RewardsBetweenPages(client, list(made))
        kept = KeptLog(tmp_path)
        first = kept.update(ServiceSource(busy)).decisions  # type: ignore[arg-type]
        assert len(busy.ends) == 1, "all pages end where the first one did"
        mine = first.filter(session="paged")
        assert (len(mine), mine["reward"].count()) == (12, 0), "the log when it was first asked"
        for decision in busy._waiting:
            client.reward(decision, 0.75)
        logged = kept.update(ServiceSource(client)).decisions.filter(session="paged")
        assert logged["decision_id"].to_list() == made
        assert logged["reward"].to_list() == [0.75] * 12
        with pytest.raises(ServiceError, match="until must be"):
            client.log(until="yesterday")
        end = client.log(limit=1).end
        beyond = f"{end[:9]}{int(end[9:], 16) + 1:016x}"
        with pytest.raises(ServiceError, match="beyond the end of this store") as refused:
            client.log(beyond)
        assert (refused.value.status, refused.value.code) == (422, "unknown_cursor")


def test_a_reward_that_follows_its_row_in_one_read_counts(service: RunningService) -> None:
    """A service of an earlier version knows no `until`: rewards come after the rows they change."""
    with Client(service.url, timeout=10) as client:
        before = client.log(limit=1).end  # other tests have written to this service
        decision = client.decide("follows").decision_id
        page = client.log(before, limit=1000)
        client.reward(decision, 0.5)
        rewards = client.log(page.next).rewards
    new = frame(page.decisions).filter(session="follows")
    assert new["reward"].to_list() == [None]
    assert merged(frame([]), new, reward_table(rewards))["reward"].to_list() == [0.5]


@pytest.mark.parametrize("name", [".", "..", "../x", "a/b c?ü"])
def test_any_session_id(service: RunningService, name: str) -> None:
    with Client(service.url, timeout=5) as client:
        client.decide(name)
        assert client.session(name).session == name
        assert client.forget(name).sessions == 1


def test_a_missing_extra_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("raise ModuleNotFoundError('no', name='httpx')")
    done = subprocess.run(
        [sys.executable, "-c", "import latentbandits.client"],
        capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1].endswith(
        "latentbandits.client needs the package 'httpx': pip install 'latentbandits[client]'"
    )
