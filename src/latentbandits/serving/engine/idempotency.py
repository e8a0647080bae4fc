"""Carry out a request once for each request id; keep digests in the place of ids."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

import msgspec

from latentbandits.serving.errors import Conflict
from latentbandits.serving.stores.protocol import Store

Answer = TypeVar("Answer")
_PREFIX = "once/"
_LOCK = "once/lock"
_SLOTS = 4096  # answers that are kept: a new one replaces the one with the same hash


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    request_id: str
    operation: str
    answer: bytes
    hashed: bool = False  # whether `request_id` is a digest; earlier versions kept ids


def digest(text: str) -> str:
    """Return the digest that stands for an id where the id itself must not be kept.

    It is what `printf %s ID | b2sum -l 128` prints.

    >>> digest("ann")
    'd8963d899008cf8c05369be7b9042715'
    """
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def once(
    store: Store,
    request_id: str | None,
    operation: str,
    act: Callable[[], Answer],
    kind: type[Answer],
) -> Answer:
    """Return the answer of `act`, or the earlier answer to the same request id.

    `operation` describes the request; Conflict if the id was used for another request. The answer
    is kept in the transaction that acts, and processes that share a store wait for each other.
    Neither `operation` nor the answer may hold the id of a user, because forgetting the user does
    not remove them. Only a digest of the request id is kept.
    """
    if request_id is None:
        return act()
    number = int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest(), "big")
    slot = f"{_PREFIX}{number % _SLOTS}"
    store.put_note(_LOCK, b"")  # takes a row lock if the store is shared
    note = store.note(slot)
    if note is not None:
        kept = _without_ids(note)
        if kept.request_id == digest(request_id):
            if kept.operation != operation:
                raise Conflict(f"request_id {request_id!r} was used to {kept.operation}")
            return msgspec.msgpack.decode(kept.answer, type=kind)
    answer = act()
    kept = _Kept(digest(request_id), operation, msgspec.msgpack.encode(answer), hashed=True)
    store.put_note(slot, msgspec.msgpack.encode(kept))
    return answer


def drop_ids(store: Store) -> None:
    """Replace the ids in answers that an earlier version kept."""
    for slot, note in store.notes(_PREFIX).items():
        if slot != _LOCK:
            new = msgspec.msgpack.encode(_without_ids(note))
            if new != note:
                store.put_note(slot, new)


def _without_ids(note: bytes) -> _Kept:
    """Return a kept answer; in an answer of an earlier version, replace ids by digests."""
    kept = msgspec.msgpack.decode(note, type=_Kept)
    if kept.hashed:
        return kept
    answer = msgspec.msgpack.decode(kept.answer)
    if isinstance(answer, dict) and "session" in answer:  # the answer of `forget`
        answer = answer["sessions"]
    return _Kept(
        digest(kept.request_id), kept.operation, msgspec.msgpack.encode(answer), hashed=True
    )
