"""Admission: which requests are let in, by their headers, their key and their body."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from starlette.types import Receive, Scope

from latentbandits.serving.errors import Busy
from latentbandits.serving.http.keys import ANYONE, Caller
from latentbandits.serving.http.messages import Problem
from latentbandits.serving.http.service import Service
from latentbandits.serving.settings import is_loopback

RawHeaders: TypeAlias = dict[bytes, bytes]
JSON = b"application/json"
_FORWARDED = frozenset((b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"))  # by a proxy
_MOST_BODY_BYTES = 32 * 2**20  # bodies being read or answered; decoded, up to 16 times as much


class NotAdmitted(Exception):  # noqa: N818 - an answer, not a fault
    """A request that HTTP alone refuses."""

    def __init__(self, status: int, code: str, message: str, retry_after: float = 1.0) -> None:
        self.status = status
        self.problem = Problem(code, message)
        self.retry_after = retry_after


def check_head(service: Service, headers: RawHeaders) -> None:
    """Refuse a body whose headers do not declare JSON, or declare too many bytes."""
    kind = headers.get(b"content-type", b"")
    if kind != JSON and kind.partition(b";")[0].strip().lower() != JSON:
        told = kind.decode("latin-1")[:80]
        raise NotAdmitted(
            415, "media_type", f"the body must be application/json, and say so; got {told!r}"
        )
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced[:19]) > service.settings.max_body:
        raise _too_large(service)


def check_bytes(service: Service, size: int) -> None:
    """Refuse a body of this size; `service.body_bytes` includes it."""
    largest = service.settings.max_body
    if size > largest:
        raise _too_large(service)
    if service.body_bytes > max(_MOST_BODY_BYTES, largest):
        raise Busy("too many large bodies wait already: try again shortly")


async def read(service: Service, receive: Receive) -> bytes:
    """Return the body; refuse it as soon as it is known to be too large.

    Its bytes are counted in `service.body_bytes`, for the caller to subtract.
    """
    parts: list[bytes] = []
    size, more = 0, True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise NotAdmitted(400, "disconnected", "the client went away")
            part = message.get("body", b"")
            size += len(part)
            service.body_bytes += len(part)
            check_bytes(service, size)
            parts.append(part)
            more = message.get("more_body", False)
    except BaseException:
        service.body_bytes -= size
        raise
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decode(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    """Return the body as its type; 400 if it is not JSON, 422 if it is of another type."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise NotAdmitted(422, "invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAdmitted(400, "malformed", f"the body is not JSON: {error}") from None


def _too_large(service: Service) -> NotAdmitted:
    largest = service.settings.max_body
    return NotAdmitted(413, "too_large", f"the body may have at most {largest} bytes")


def identify(service: Service, headers: RawHeaders, scope: str, *, shared: bool = False) -> Caller:
    """Return whose key this is; refuse one that lacks the scope, or has used up its rate.

    A `shared` endpoint tells of all sessions: a key that is limited to some is refused.
    """
    if service.keys is None:
        return ANYONE
    kind, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if kind.lower() != "bearer":
        raise NotAdmitted(401, "unauthorised", "send a key: Authorization: Bearer lb_...")
    caller = service.keys.caller(key.strip())
    if caller is None:
        raise NotAdmitted(401, "unauthorised", "this key is not one of the service's")
    if not caller.may(scope):
        raise NotAdmitted(403, "forbidden", f"this key lacks the scope {scope!r}")
    if shared and caller.sessions:
        raise NotAdmitted(
            403, "forbidden", f"this key is for sessions {caller.sessions!r}..., not for all"
        )
    wait = caller.wait()
    if wait > 0:
        raise NotAdmitted(429, "rate", f"this key has used up its rate: wait {wait:.1f} s", wait)
    return caller


def check_admin(service: Service, scope: Scope) -> None:
    """Refuse administrators' requests if there are no keys, but for those that `insecure_admin`
    lets in: from this machine, to a name of this machine, and not forwarded by a proxy.
    """
    if service.keys is not None:
        return  # `identify` asks for one
    headers: RawHeaders = dict(scope["headers"])
    check_host(service, headers)
    peer = scope.get("client")
    local = peer is not None and is_loopback(peer[0]) and is_loopback(_host(headers))
    if not service.settings.insecure_admin:
        told = "or, to try things on this machine, start it with --insecure-admin"
    elif not local or not headers.keys().isdisjoint(_FORWARDED):
        told = "--insecure-admin lets in only what comes from this machine, and by no proxy"
    else:
        return
    raise NotAdmitted(
        403,
        "forbidden",
        "this needs an admin key, and the service has no keys: make one (`latentbandits key admin "
        f"--keys keys.toml --scopes admin`) and start the service with --keys keys.toml; {told}",
    )


def _host(headers: RawHeaders) -> str:
    """Return the name in the Host header, without a port."""
    host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
    return host[0] if host[2].isdecimal() and host[0] else "".join(host)


def check_host(service: Service, headers: RawHeaders) -> None:
    """Refuse unknown hosts if there are no keys, against DNS rebinding by web pages."""
    allowed = service.settings.allowed_hosts
    if service.keys is not None and not allowed:
        return
    name = _host(headers)
    if allowed == "*" or is_loopback(name):
        return
    if name in [part.strip() for part in allowed.split(",")]:
        return
    raise NotAdmitted(421, "host", f"this service does not answer to the host {name[:100]!r}")
