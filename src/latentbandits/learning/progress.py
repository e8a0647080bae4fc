"""What a long computation tells of how far it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def start(self, description: str, total: int) -> None: ...

    def advance(self, steps: int) -> None: ...


class Silent:
    """Nobody is watching."""

    def start(self, description: str, total: int) -> None: ...

    def advance(self, steps: int) -> None: ...
