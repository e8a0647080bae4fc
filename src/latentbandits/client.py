"""Clients of a decision service: `Client` for plain code, `AsyncClient` for an event loop.

Every request carries an id or is safe to repeat. So a request whose answer was lost is sent again,
and nothing is done twice. Every call ends by its deadline. If no answer came by then and the caller
gave a `default`, the client returns that, and the decision says so.

The requests, their repetitions and the pauses between them are written once for both clients, in
`latentbandits.client_protocol`: as generators that do no input or output themselves. Both clients
send them over a `_Wire`, on an event loop: only there can looking up a name, connecting, and an
answer that trickles all be ended in time. `Client` has that loop in a thread beside the program's.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any, Concatenate, ParamSpec, TypeVar

from latentbandits.client_protocol import (
    Conversation,
    Conversations,
    NoAnswerError,
    Pause,
    Reply,
    Send,
    ServiceError,
)
from latentbandits.extras import needed_by

with needed_by("latentbandits.client"):
    import httpx

    from latentbandits.serving.records import LogEntry

with suppress(ImportError):  # httpx would load it in the first call, 25 ms of that call's deadline
    import_module("anyio._backends._asyncio")

__all__ = ["AsyncClient", "Client", "NoAnswerError", "ServiceError"]

Answer = TypeVar("Answer")
P = ParamSpec("P")
_NO_REPLY = Reply(0, {}, b"")
_CONNECTIONS = 32  # at a time, of a client; further requests wait for one of them
_GRACE = 0.02  # seconds that `Client` waits longer than the loop that sends for it
MAX_ANSWER = 64 * 2**20  # bytes


class _Wire:
    """Connections to a service, on one event loop."""

    def __init__(self, url: str, key: str | None, timeout: float, max_answer: int) -> None:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        self._settings = (url, key, timeout, max_answer)
        self._url = url
        self._timeout = timeout
        self._max_answer = max_answer
        # No timeout of httpx: those are for each read and each wait, and not for all of them.
        limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=None, limits=limits)
        self._free = asyncio.Semaphore(_CONNECTIONS)
        self._loop: asyncio.AbstractEventLoop | None = None

    def on(self, loop: asyncio.AbstractEventLoop) -> _Wire:
        """Return this wire, or one like it if this belongs to the loop of a parent process."""
        usable = self._loop in (None, loop) or self._http.is_closed
        return self if usable else _Wire(*self._settings)

    async def send(self, request: Send) -> Reply:
        """Return the answer to a request; without one in time, the reason with status 0."""
        self._check()
        begun = time.monotonic()
        try:
            async with asyncio.timeout(request.until - begun), self._free:
                async with asyncio.timeout(self._timeout):
                    return await self._exchange(request)
        except TimeoutError:
            return self._lost(f"no answer within {time.monotonic() - begun:.3g} s")
        except httpx.HTTPError as error:
            return self._lost(str(error) or type(error).__name__)

    async def _exchange(self, request: Send) -> Reply:
        stream = self._http.stream(request.method, request.path, content=request.body)
        async with stream as response:
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > self._max_answer:
                    return self._lost(
                        f"its answer has more than {self._max_answer} bytes (max_answer)", True
                    )
            return Reply(response.status_code, dict(response.headers), bytes(body))

    def _lost(self, why: str, final: bool = False) -> Reply:
        return Reply(0, {}, f"the service at {self._url} did not answer: {why}".encode(), final)

    def _check(self) -> None:
        if self._http.is_closed:
            raise RuntimeError(f"the client of {self._url} is closed: make a new one")
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        if self._loop is not running:
            raise RuntimeError(
                f"the client of {self._url} was used in another event loop before, and its "
                "connections belong to that one: make an AsyncClient in each event loop"
            )

    async def close(self) -> None:
        if not self._http.is_closed:
            self._check()
            await self._http.aclose()


class _Background:
    """The event loop of all `Client`s of a process, in a thread that ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="latentbandits-client", daemon=True).start()
            return self._loop

    def forget(self) -> None:
        """Forget the loop, in a fork: it has the memory of its parent, but not the thread."""
        self._lock = threading.Lock()
        self._loop = None


_BACKGROUND = _Background()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_BACKGROUND.forget)


def _waiting(
    method: Callable[Concatenate[Conversations, P], Conversation[Answer]],
) -> Callable[Concatenate[Client, P], Answer]:
    @wraps(method)
    def call(self: Client, /, *arguments: P.args, **options: P.kwargs) -> Answer:
        return self._hold(method(self._conversations, *arguments, **options))

    return call


def _awaiting(
    method: Callable[Concatenate[Conversations, P], Conversation[Answer]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, Answer]]:
    @wraps(method)
    async def call(self: AsyncClient, /, *arguments: P.args, **options: P.kwargs) -> Answer:
        return await self._hold(method(self._conversations, *arguments, **options))

    return call


class _Connected:
    """The options of a client, which `Client` documents."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 1.0,
        retries: int = 3,
        deadline: float | None = None,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        for name, seconds in (("timeout", timeout), ("deadline", deadline)):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"{name} must be a number of seconds above 0; got {seconds!r}")
        if retries < 0:
            raise ValueError(f"retries must be 0 or more; got {retries!r}")
        self._conversations = Conversations(
            timeout * (retries + 1) if deadline is None else deadline, retries
        )
        self._wire = _Wire(url, key, timeout, max_answer)


class Client(_Connected):
    """A client that sends requests to the service at `url` and waits for each answer.

    A call takes at most `deadline` seconds, whatever happens: looking up the name, waiting for a
    free connection, connecting, reading, and all attempts included. An attempt takes at most
    `timeout` seconds. After a failure that may pass, up to `retries` more attempts follow, with the
    same id, after the time that the service asked to wait, if that is before the deadline. Without
    a `deadline` it is the time of all attempts: `timeout` times (`retries` + 1).
    Answers of more than `max_answer` bytes are refused. Threads may share a client.

    >>> with Client("http://127.0.0.1:1", deadline=0.1) as client:  # where no service is
    ...     client.decide("ann", ["red", "blue"], default="red").action
    'red'
    """

    decide = _waiting(Conversations.decide)
    decide_many = _waiting(Conversations.decide_many)
    reward = _waiting(Conversations.reward)
    reward_many = _waiting(Conversations.reward_many)
    correct = _waiting(Conversations.correct)
    session = _waiting(Conversations.session)
    forget = _waiting(Conversations.forget)
    merge = _waiting(Conversations.merge)
    activate = _waiting(Conversations.activate)
    add_action = _waiting(Conversations.add_action)
    retire_action = _waiting(Conversations.retire_action)
    models = _waiting(Conversations.models)
    active_model = _waiting(Conversations.active_model)
    catalogue = _waiting(Conversations.catalogue)
    actions = _waiting(Conversations.actions)
    overview = _waiting(Conversations.overview)
    log = _waiting(Conversations.log)
    forgotten = _waiting(Conversations.forgotten)

    def entries(self, since: str = "") -> Iterator[LogEntry]:
        """Yield the decisions after a cursor, up to what is committed when it is first asked."""
        until = ""
        while True:
            page = self.log(since, until=until)
            yield from page.decisions
            if page.next == since:
                return
            since, until = page.next, page.end

    def _hold(self, conversation: Conversation[Answer]) -> Answer:
        reply = _NO_REPLY
        step = next(conversation)
        while True:
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                reply = self._send(step)
            try:
                step = conversation.send(reply)
            except StopIteration as end:
                answer: Answer = end.value
                return answer

    def _send(self, request: Send) -> Reply:
        loop = _BACKGROUND.loop()
        self._wire = self._wire.on(loop)
        sending = asyncio.run_coroutine_threadsafe(self._wire.send(request), loop)
        try:
            return sending.result(request.until - time.monotonic() + _GRACE)
        except TimeoutError:
            return Reply(0, {}, b"the thread that sends the requests of clients did not run")
        finally:
            sending.cancel()  # where it has not ended: the deadline, or a key that was pressed

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        loop = _BACKGROUND.loop()
        self._wire = self._wire.on(loop)
        asyncio.run_coroutine_threadsafe(self._wire.close(), loop).result()


class AsyncClient(_Connected):
    """`Client` for programs with an event loop: the same methods, to be awaited."""

    decide = _awaiting(Conversations.decide)
    decide_many = _awaiting(Conversations.decide_many)
    reward = _awaiting(Conversations.reward)
    reward_many = _awaiting(Conversations.reward_many)
    correct = _awaiting(Conversations.correct)
    session = _awaiting(Conversations.session)
    forget = _awaiting(Conversations.forget)
    merge = _awaiting(Conversations.merge)
    activate = _awaiting(Conversations.activate)
    add_action = _awaiting(Conversations.add_action)
    retire_action = _awaiting(Conversations.retire_action)
    models = _awaiting(Conversations.models)
    active_model = _awaiting(Conversations.active_model)
    catalogue = _awaiting(Conversations.catalogue)
    actions = _awaiting(Conversations.actions)
    overview = _awaiting(Conversations.overview)
    log = _awaiting(Conversations.log)
    forgotten = _awaiting(Conversations.forgotten)

    async def entries(self, since: str = "") -> AsyncIterator[LogEntry]:
        """Yield the decisions after a cursor, up to what is committed when it is first asked."""
        until = ""
        while True:
            page = await self.log(since, until=until)
            for entry in page.decisions:
                yield entry
            if page.next == since:
                return
            since, until = page.next, page.end

    async def _hold(self, conversation: Conversation[Answer]) -> Answer:
        reply = _NO_REPLY
        step = next(conversation)
        while True:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                reply = await self._wire.send(step)
            try:
                step = conversation.send(reply)
            except StopIteration as end:
                answer: Answer = end.value
                return answer

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._wire.close()
