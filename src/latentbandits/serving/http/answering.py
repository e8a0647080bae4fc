"""The handler of an endpoint: from the headers and the body of a request to its answer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from latentbandits.serving.errors import (
    Busy,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Refused,
    StoreUnavailable,
)
from latentbandits.serving.http.admission import (
    JSON,
    NotAdmitted,
    RawHeaders,
    check_bytes,
    check_head,
    check_host,
    decode,
    identify,
    read,
)
from latentbandits.serving.http.endpoints import ENDPOINTS, Endpoint
from latentbandits.serving.http.handlers import Call, made, work_of
from latentbandits.serving.http.keys import Caller
from latentbandits.serving.http.messages import ErrorBody, Problem
from latentbandits.serving.http.service import Service

Answered: TypeAlias = tuple[int, bytes, RawHeaders]

_NO_MORE: RawHeaders = {}
encode_json = msgspec.json.Encoder().encode
STATUSES: tuple[tuple[type[Refused], int], ...] = (
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Invalid, 422),
    (Busy, 503),
    (OutcomeUnknown, 504),
    (StoreUnavailable, 503),
)


def direct_handlers(service: Service) -> dict[tuple[str, str], Handler]:
    """Return the endpoints that are answered without routing, by method and path."""
    return {(e.method, e.path): Handler(service, e) for e in ENDPOINTS if e.operation is not None}


class Handler:
    """An endpoint as an ASGI app: from the body's bytes to the answer's."""

    def __init__(self, service: Service, endpoint: Endpoint) -> None:
        self._service = service
        self._endpoint = endpoint
        self._decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, content, extra = await self.respond(scope, receive)
        await _send(send, status, content, extra)

    async def respond(self, scope: Scope, receive: Receive) -> Answered:
        """Return the status, body and further headers of the answer."""
        start = time.perf_counter()
        service, endpoint = self._service, self._endpoint
        data = b""
        caller: Caller | None = None
        body: Any = None
        captured: dict[str, str] = {}
        answer: Any
        try:
            headers: RawHeaders = dict(scope["headers"])
            caller = self._admitted(headers)
            captured = _parameters(endpoint, scope) if endpoint.parameters else {}
            if self._decoder is not None:
                check_head(service, headers)
                data = await read(service, receive)
                body = decode(self._decoder, data)
            caller.spend(work_of(body))
            answer = await endpoint.handle(Call(service, body, captured, caller))
        except (Refused, NotAdmitted) as refusal:
            answer = refusal
        finally:
            service.body_bytes -= len(data)
        answered = self._answered(answer, start)
        if endpoint.scope == "admin" and caller is not None:
            details = {**captured, **_details(body)}
            service.audit.note(caller.name, endpoint.handle.__name__, details, answered[0])
        return answered

    def start(
        self,
        headers: RawHeaders,
        data: bytes,
        reply: Callable[[int, bytes, RawHeaders], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Answer a request whose whole body is there, by `reply`; `fail` takes a fault of ours.

        This is `respond` for the endpoints with an `operation`, without a task of its own.
        """
        start = time.perf_counter()
        service, endpoint = self._service, self._endpoint
        assert self._decoder is not None
        assert endpoint.operation is not None

        def finish(answer: Any) -> None:
            service.body_bytes -= len(data)
            try:
                try:
                    told = answer if isinstance(answer, BaseException) else made(answer)
                except Refused as refusal:
                    told = refusal
                reply(*self._answered(told, start))
            except Exception as error:
                fail(error)

        service.body_bytes += len(data)
        try:
            caller = self._admitted(headers)
            check_head(service, headers)
            check_bytes(service, len(data))
            body = decode(self._decoder, data)
            work = work_of(body)
            caller.spend(work)
            operation = endpoint.operation(Call(service, body, {}, caller))
            service.writer.submit(operation, finish, work=work)
        except Exception as error:
            finish(error)

    def _admitted(self, headers: RawHeaders) -> Caller:
        check_host(self._service, headers)
        endpoint = self._endpoint
        return identify(self._service, headers, endpoint.scope, shared=endpoint.shared)

    def _answered(self, answer: Any, start: float) -> Answered:
        """Return an answer or a refusal as it is sent, and count it; raises other exceptions."""
        extra: RawHeaders = _NO_MORE
        if not isinstance(answer, BaseException):
            status = 200 if isinstance(answer, list) else self._endpoint.status
            content = encode_json(answer)
        elif isinstance(answer, Refused):
            status, content, extra = _refusal(answer)
        elif isinstance(answer, NotAdmitted):
            status, content, extra = problem_answer(
                answer.status, answer.problem, answer.retry_after
            )
        else:
            raise answer
        seconds = time.perf_counter() - start
        self._service.metrics.observe(self._endpoint.path, status, seconds)
        return status, content, extra


def _details(body: Any) -> dict[str, Any]:
    """Return the body of a request for the audit log."""
    told = msgspec.to_builtins(body)
    if isinstance(told, dict):
        return told
    return {} if told is None else {"requests": told}


async def _send(send: Send, status: int, content: bytes, extra: RawHeaders) -> None:
    length = (b"content-length", b"%d" % len(content))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [length, (b"content-type", JSON), *extra.items()],
        }
    )
    await send({"type": "http.response.body", "body": content})


def _parameters(endpoint: Endpoint, scope: Scope) -> dict[str, str]:
    """Return the parameters of the query and of the path.

    A parameter that the endpoint does not have is refused, for it is likely a slip.
    """
    known = [one.name for one in endpoint.parameters if one.place == "query"]
    values: dict[str, str] = {}
    for name, value in QueryParams(scope["query_string"]).multi_items():
        if name not in known:
            taken = " and ".join(f"`{one}`" for one in known) or "none"
            raise Invalid(f"there is no parameter {name[:50]!r} here; this request takes {taken}")
        if name in values:
            raise Invalid(f"the parameter `{name}` is given more than once: give it once")
        values[name] = value
    return {**values, **scope.get("path_params", {})}


def problem_answer(status: int, problem: Problem, retry_after: float = 1.0) -> Answered:
    """Return the status, body and further headers that tell of a problem."""
    extra: RawHeaders = {}
    if status == 401:
        extra[b"www-authenticate"] = b"Bearer"
    if status in (429, 503):
        extra[b"retry-after"] = b"%d" % max(1, math.ceil(retry_after))
    return status, encode_json(ErrorBody(problem, "unknown" if status == 504 else None)), extra


def _refusal(refusal: Refused) -> Answered:
    status = next((code for kind, code in STATUSES if isinstance(refusal, kind)), 422)
    message = refusal.message
    if isinstance(refusal, OutcomeUnknown):  # its message may contain the database's address
        message = "the store did not say whether it committed: ask again with the same request id"
    elif isinstance(refusal, StoreUnavailable):
        message = "the store cannot be reached or did not commit: nothing was done; try again"
    return problem_answer(status, Problem(refusal.code, message))
