"""The progress protocol of long computations."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Counts the steps of one task after the other."""

    def start(self, description: str, total: int) -> None:
        """Begin a task of `total` steps."""

    def advance(self, steps: int) -> None:
        """Note that `steps` more are done."""


class Silent:
    """Progress that shows nothing."""

    def start(self, description: str, total: int) -> None: ...

    def advance(self, steps: int) -> None: ...
