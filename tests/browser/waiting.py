"""Patience with a page: what it shows arrives a little later than what it was asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(call: Callable[[], Found], patience: float = 15.0) -> Found:
    """The first true answer of `call`; AssertionError if there is none in time."""
    end = time.monotonic() + patience
    while True:
        actual = call()
        if actual:
            return actual
        assert time.monotonic() < end, f"nothing within {patience:g} s"
        time.sleep(0.05)
