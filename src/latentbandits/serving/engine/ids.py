"""Ids: of decisions, whose draws they seed, and of requests that are carried out once."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from latentbandits.serving.errors import Conflict, NotFound
from latentbandits.serving.stores.protocol import Store

Answer = TypeVar("Answer")
_DECISION_ID = re.compile("[0-9a-fA-F]{32}")
_PREFIX = "once/"
_LOCK = "once/lock"
_SLOTS = 4096  # answers that are kept: a new one replaces the one with the same hash


def milliseconds() -> int:
    """Return the time of the clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class OrderSequence:
    """Hands out the store's orders: strictly increasing within a session, never given twice.

    Orders come in blocks that the store reserves, so that they depend on no clock. A block that
    was reserved after a session was locked lies above everything that happened to it before.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = 0
        self._end = 0

    def next(self, floor: int = 0) -> int:
        """Return a number that nobody else has, above `floor`."""
        order = self._next
        if not floor < order < self._end:
            block = self._store.reserve(floor)
            order, self._end = block.start, block.stop
        self._next = order + 1
        return order

    def forget(self) -> None:
        """Give up the block: its reservation may have been rolled back."""
        self._next = self._end = 0


def new_token() -> int:
    """Return 63 random bits: they keep a decision's id and its draws from being guessed."""
    return secrets.randbits(63)


def decision_id(order: int, token: int) -> str:
    """Return the public id of a decision: 32 hexadecimal digits.

    >>> decision_id(1, 2)
    '00000000000000010000000000000002'
    """
    return f"{order:016x}{token:016x}"


def parse_decision_id(text: str) -> tuple[int, int]:
    """Return order and token; NotFound where no decision can have this id."""
    if _DECISION_ID.fullmatch(text):
        order, token = int(text[:16], 16), int(text[16:], 16)
        if order < 1 << 63 and token < 1 << 63:
            return order, token
    raise NotFound("decision", text)


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
    """Return the answer of `act`, or the one that the same request id had before.

    `operation` describes the request; Conflict if the id was used for another one. The answer is
    kept in the transaction that acts, and processes that share a store wait for each other.
    Neither `operation` nor the answer may hold the id of a user: forgetting the user does not
    remove them. Of the request id a digest is kept.
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
    """Return what is kept; of an earlier version with a digest, and without the user's id."""
    kept = msgspec.msgpack.decode(note, type=_Kept)
    if kept.hashed:
        return kept
    answer = msgspec.msgpack.decode(kept.answer)
    if isinstance(answer, dict) and "session" in answer:  # the answer of `forget`
        answer = answer["sessions"]
    return _Kept(
        digest(kept.request_id), kept.operation, msgspec.msgpack.encode(answer), hashed=True
    )
