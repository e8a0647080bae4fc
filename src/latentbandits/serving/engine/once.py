"""Run an administrator's request once, even if it arrives several times."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

import msgspec

from latentbandits.serving.errors import Conflict
from latentbandits.serving.stores.protocol import Store

Answer = TypeVar("Answer")
_LOCK = "once/lock"
_SLOTS = 4096  # answers that are kept: a new one replaces the one with the same hash


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    request_id: str
    operation: str
    answer: bytes


def once(
    store: Store,
    request_id: str | None,
    operation: str,
    act: Callable[[], Answer],
    kind: type[Answer],
) -> Answer:
    """Return the answer of `act`, or the one that the same request id had before.

    `operation` describes the request; Conflict if the id was used for another one. The answer is
    kept in the transaction that acts, and processes that share a store wait for each other.
    """
    if request_id is None:
        return act()
    digest = hashlib.blake2b(request_id.encode(), digest_size=8).digest()
    slot = f"once/{int.from_bytes(digest, 'big') % _SLOTS}"
    store.put_note(_LOCK, b"")  # takes a row lock if the store is shared
    note = store.note(slot)
    if note is not None:
        kept = msgspec.msgpack.decode(note, type=_Kept)
        if kept.request_id == request_id:
            if kept.operation != operation:
                raise Conflict(f"request_id {request_id!r} was used to {kept.operation}")
            return msgspec.msgpack.decode(kept.answer, type=kind)
    answer = act()
    kept = _Kept(request_id, operation, msgspec.msgpack.encode(answer))
    store.put_note(slot, msgspec.msgpack.encode(kept))
    return answer
