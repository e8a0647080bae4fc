"""Clients of a decision service: `Client` for plain code, `AsyncClient` for an event loop.

Every request carries an id or is safe to repeat. So a request whose answer was lost is sent again,
and nothing is done twice. If no answer comes in time and the caller gave a `default`, the client
returns that, and the decision says so.

The requests, their repetitions and the pauses between them are written once for both clients, in
`latentbandits.conversations`: as generators that do no input or output themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from latentbandits.conversations import (
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

    from latentbandits.serving.log_entries import LogEntry

__all__ = ["AsyncClient", "Client", "NoAnswerError", "ServiceError"]

Answer = TypeVar("Answer")
P = ParamSpec("P")
_NO_REPLY = Reply(0, {}, b"")


def _headers(key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return headers


def _reply(response: httpx.Response) -> Reply:
    return Reply(response.status_code, dict(response.headers), response.content)


def _lost(error: httpx.HTTPError) -> Reply:
    where = f"{error.request.url.scheme}://{error.request.url.netloc.decode()}"
    why = str(error) or type(error).__name__
    return Reply(0, {}, f"the service at {where} did not answer: {why}".encode())


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


class Client:
    """A client that sends requests to the service at `url` and waits for each answer.

    `timeout` is in seconds, for each attempt; after a failure that may pass, up to `retries` more
    attempts follow, with the same id, after the time that the service asked to wait.
    """

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 1.0, retries: int = 3
    ) -> None:
        self._conversations = Conversations(timeout, retries)
        self._http = httpx.Client(base_url=url, headers=_headers(key), timeout=timeout)

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
    catalogue = _waiting(Conversations.catalogue)
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
        try:
            return _reply(self._http.request(request.method, request.path, content=request.body))
        except httpx.HTTPError as error:
            return _lost(error)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()


class AsyncClient:
    """`Client` for programs with an event loop: the same methods, to be awaited."""

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 1.0, retries: int = 3
    ) -> None:
        self._conversations = Conversations(timeout, retries)
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(key), timeout=timeout)

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
    catalogue = _awaiting(Conversations.catalogue)
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
                reply = await self._send(step)
            try:
                step = conversation.send(reply)
            except StopIteration as end:
                answer: Answer = end.value
                return answer

    async def _send(self, request: Send) -> Reply:
        try:
            response = await self._http.request(request.method, request.path, content=request.body)
            return _reply(response)
        except httpx.HTTPError as error:
            return _lost(error)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()
