"""Ids of decisions: an order from the store and a random token; together they seed its draws."""

from __future__ import annotations

import re
import secrets
import time

from latentbandits.serving.errors import NotFound
from latentbandits.serving.stores.protocol import Store

_DECISION_ID = re.compile("[0-9a-fA-F]{32}")


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
