"""Talk to a decision service: `Client` waits, `AsyncClient` awaits; both speak the same words.

A decision is asked for with a `request_id`, so that asking again after a lost answer gives the
same decision. Where no answer comes in time and a `default` was given, that is played, and the
decision says so.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from latentbandits.serving.http.messages import (
    ActivateRequest,
    Decided,
    DecideRequest,
    ErrorBody,
    Forgotten,
    MergeRequest,
    Models,
    Overview,
    Rewarded,
    RewardRequest,
    SessionView,
)
from latentbandits.serving.records import SwapMode

Answer = TypeVar("Answer")
_encode = msgspec.json.Encoder().encode
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_FIRST_PAUSE = 0.05  # seconds; doubled with every attempt, and drawn at random up to that


class ServiceError(Exception):
    """The service refused: `status` is HTTP's, `code` a word for programs."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message


class NoAnswerError(ServiceError):
    """No answer came in time, or none that was an answer; it may have been done all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "no_answer", message)


@dataclass(frozen=True)
class _Call(Generic[Answer]):
    """A request that may be sent again without being done twice."""

    method: str
    path: str
    body: bytes | None
    answer: type[Answer]


class _Calls:
    """The words of both clients."""

    def decide_call(
        self,
        session: str,
        actions: Sequence[str] | None,
        features: Sequence[Sequence[float]] | None,
        request_id: str | None,
        default: str | None,
    ) -> _Call[Decided]:
        request = DecideRequest(
            session,
            None if actions is None else list(actions),
            None if features is None else [[float(x) for x in row] for row in features],
            request_id or str(uuid.uuid4()),
            default,
        )
        return _Call("POST", "/v1/decide", _encode(request), Decided)

    def reward_call(self, decision_id: str, value: float, event_id: str | None) -> _Call[Rewarded]:
        request = RewardRequest(decision_id, float(value), event_id)
        return _Call("POST", "/v1/reward", _encode(request), Rewarded)

    def session_call(self, session: str) -> _Call[SessionView]:
        return _Call("GET", f"/v1/sessions/{quote(session, safe='')}", None, SessionView)

    def forget_call(self, session: str) -> _Call[Forgotten]:
        return _Call("DELETE", f"/v1/sessions/{quote(session, safe='')}", None, Forgotten)

    def merge_call(self, into: str, other: str) -> _Call[SessionView]:
        return _Call("POST", "/v1/sessions/merge", _encode(MergeRequest(into, other)), SessionView)

    def activate_call(self, path: str, mode: SwapMode | None, force: bool) -> _Call[Models]:
        request = ActivateRequest(path=path, mode=mode, force=force)
        return _Call("POST", "/v1/models/activate", _encode(request), Models)

    def models_call(self) -> _Call[Models]:
        return _Call("GET", "/v1/models", None, Models)

    def overview_call(self) -> _Call[Overview]:
        return _Call("GET", "/v1/overview", None, Overview)


def fallback(
    session: str, actions: Sequence[str] | None, default: str, request_id: str | None
) -> Decided:
    """What is played when no answer came: it has no decision id, and no reward can be told."""
    index = list(actions).index(default) if actions is not None and default in actions else -1
    return Decided(
        decision_id="",
        action=default,
        index=index,
        propensity=1.0,
        propensity_kind="exact",
        state_probabilities=[],
        model="",
        policy="default",
        round=0,
        fallback=True,
    )


def _read(call: _Call[Answer], response: httpx.Response) -> Answer:
    if response.is_success:
        try:
            return msgspec.json.decode(response.content, type=call.answer)
        except msgspec.DecodeError as error:
            raise NoAnswerError(f"the service's answer makes no sense: {error}") from None
    try:
        problem = msgspec.json.decode(response.content, type=ErrorBody).error
    except msgspec.DecodeError:
        raise ServiceError(response.status_code, "http", response.reason_phrase) from None
    raise ServiceError(response.status_code, problem.code, problem.message)


def _pauses(retries: int) -> Iterator[float]:
    for attempt in range(retries):
        yield random.uniform(0, _FIRST_PAUSE * 2**attempt)


def _headers(key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return headers


class Client(_Calls):
    """Asks the service at `url` and waits for the answer.

    `timeout` is in seconds, for each attempt; after a failure that may pass, up to `retries` more
    attempts follow, with the same `request_id`.
    """

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 1.0, retries: int = 3
    ) -> None:
        self._retries = retries
        self._http = httpx.Client(base_url=url, headers=_headers(key), timeout=timeout)

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

    def decide(
        self,
        session: str,
        actions: Sequence[str] | None = None,
        features: Sequence[Sequence[float]] | None = None,
        *,
        request_id: str | None = None,
        default: str | None = None,
    ) -> Decided:
        """The service's decision; `default`, marked as a fallback, if no answer comes."""
        sent = default if actions is not None and default in actions else None
        try:
            return self._send(self.decide_call(session, actions, features, request_id, sent))
        except ServiceError as error:
            if default is None or not _passing(error):
                raise
            return fallback(session, actions, default, request_id)

    def reward(self, decision_id: str, value: float, *, event_id: str | None = None) -> Rewarded:
        """Tell what a decision earned; telling it again changes nothing."""
        return self._send(self.reward_call(decision_id, value, event_id))

    def session(self, session: str) -> SessionView:
        return self._send(self.session_call(session))

    def forget(self, session: str) -> Forgotten:
        return self._send(self.forget_call(session))

    def merge(self, into: str, other: str) -> SessionView:
        return self._send(self.merge_call(into, other))

    def activate(self, path: str, mode: SwapMode | None = None, *, force: bool = False) -> Models:
        return self._send(self.activate_call(path, mode, force))

    def models(self) -> Models:
        return self._send(self.models_call())

    def overview(self) -> Overview:
        return self._send(self.overview_call())

    def _send(self, call: _Call[Answer]) -> Answer:
        pauses = _pauses(self._retries)
        while True:
            try:
                response = self._http.request(call.method, call.path, content=call.body)
                if response.status_code not in _TRY_AGAIN:
                    return _read(call, response)
                problem: ServiceError = _problem(call, response)
            except httpx.HTTPError as error:
                problem = NoAnswerError(f"{type(error).__name__}: {error}")
            pause = next(pauses, None)
            if pause is None:
                raise problem
            time.sleep(pause)


class AsyncClient(_Calls):
    """`Client` for programs with an event loop."""

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 1.0, retries: int = 3
    ) -> None:
        self._retries = retries
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(key), timeout=timeout)

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

    async def decide(
        self,
        session: str,
        actions: Sequence[str] | None = None,
        features: Sequence[Sequence[float]] | None = None,
        *,
        request_id: str | None = None,
        default: str | None = None,
    ) -> Decided:
        """The service's decision; `default`, marked as a fallback, if no answer comes."""
        sent = default if actions is not None and default in actions else None
        try:
            return await self._send(self.decide_call(session, actions, features, request_id, sent))
        except ServiceError as error:
            if default is None or not _passing(error):
                raise
            return fallback(session, actions, default, request_id)

    async def reward(
        self, decision_id: str, value: float, *, event_id: str | None = None
    ) -> Rewarded:
        """Tell what a decision earned; telling it again changes nothing."""
        return await self._send(self.reward_call(decision_id, value, event_id))

    async def session(self, session: str) -> SessionView:
        return await self._send(self.session_call(session))

    async def forget(self, session: str) -> Forgotten:
        return await self._send(self.forget_call(session))

    async def merge(self, into: str, other: str) -> SessionView:
        return await self._send(self.merge_call(into, other))

    async def activate(
        self, path: str, mode: SwapMode | None = None, *, force: bool = False
    ) -> Models:
        return await self._send(self.activate_call(path, mode, force))

    async def models(self) -> Models:
        return await self._send(self.models_call())

    async def overview(self) -> Overview:
        return await self._send(self.overview_call())

    async def _send(self, call: _Call[Answer]) -> Answer:
        pauses = _pauses(self._retries)
        while True:
            try:
                response = await self._http.request(call.method, call.path, content=call.body)
                if response.status_code not in _TRY_AGAIN:
                    return _read(call, response)
                problem: ServiceError = _problem(call, response)
            except httpx.HTTPError as error:
                problem = NoAnswerError(f"{type(error).__name__}: {error}")
            pause = next(pauses, None)
            if pause is None:
                raise problem
            await asyncio.sleep(pause)


def _problem(call: _Call[Any], response: httpx.Response) -> ServiceError:
    try:
        _read(call, response)
    except ServiceError as error:
        return error
    raise AssertionError("a status that asks for another attempt is not a success")


def _passing(error: ServiceError) -> bool:
    """Whether the service could not answer, rather than would not."""
    return error.status == 0 or error.status in _TRY_AGAIN
