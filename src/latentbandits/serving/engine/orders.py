"""Time-ordered ids: one number orders everything that happens, and seeds every decision."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable

import numpy as np

from latentbandits.serving.errors import NotFound

_NODE_BITS = 8
_SEQUENCE_BITS = 13
_SHIFT = _NODE_BITS + _SEQUENCE_BITS
N_NODES = 1 << _NODE_BITS
_ID_DIGITS = 32


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


class Orders:
    """Strictly increasing 63-bit numbers: milliseconds, then the process, then a count.

    Processes that share a store have different `node`s, so their numbers never meet.
    """

    def __init__(self, node: int = 0, clock: Callable[[], int] = milliseconds) -> None:
        self.node = node
        self._clock = clock
        self._time = 0
        self._sequence = 0

    def next(self, floor: int = 0) -> int:
        """A number above all before it and above `floor`, however the clocks stand."""
        now = max(self._clock(), self._time)
        if floor >= _compose(now, self.node, 0):
            now = max(now, time_of(floor) + 1)
        if now > self._time:
            self._time, self._sequence = now, 0
        elif self._sequence + 1 < 1 << _SEQUENCE_BITS:
            self._sequence += 1
        else:
            self._time, self._sequence = self._time + 1, 0
        return _compose(self._time, self.node, self._sequence)


def _compose(time_ms: int, node: int, sequence: int) -> int:
    return time_ms << _SHIFT | node << _SEQUENCE_BITS | sequence


def time_of(order: int) -> int:
    """The milliseconds since 1970 at which an order was taken.

    >>> time_of(Orders(clock=lambda: 1_700_000_000_000).next())
    1700000000000
    """
    return order >> _SHIFT


def first_order_at(time_ms: int) -> int:
    return time_ms << _SHIFT


def new_token() -> int:
    """What makes a decision id impossible to guess, and its draws impossible to foresee."""
    return secrets.randbits(63)


def decision_id(order: int, token: int) -> str:
    """The public id of a decision: 32 hexadecimal digits that sort by time.

    >>> decision_id(1, 2)
    '00000000000000010000000000000002'
    """
    return f"{order:016x}{token:016x}"


def parse_decision_id(text: str) -> tuple[int, int]:
    """Order and token; NotFound where no decision can have this id."""
    if len(text) == _ID_DIGITS and text.isascii() and text.isalnum():
        try:
            order, token = int(text[:16], 16), int(text[16:], 16)
        except ValueError:
            pass
        else:
            if order < 1 << 63 and token < 1 << 63:
                return order, token
    raise NotFound("decision", text)


class Randomness:
    """The random numbers of a decision: those of its id and no others.

    One generator is set anew for every decision: that is ten times quicker than making one.
    """

    def __init__(self) -> None:
        self._bits = np.random.PCG64(0)
        self._generator = np.random.Generator(self._bits)

    def of(self, order: int, token: int) -> np.random.Generator:
        name = order.to_bytes(8, "big") + token.to_bytes(8, "big")
        digest = hashlib.blake2b(name, digest_size=32, person=b"latentbandits").digest()
        self._bits.state = {
            "bit_generator": "PCG64",
            "state": {
                "state": int.from_bytes(digest[:16], "big"),
                "inc": int.from_bytes(digest[16:], "big") | 1,
            },
            "has_uint32": 0,
            "uinteger": 0,
        }
        return self._generator
