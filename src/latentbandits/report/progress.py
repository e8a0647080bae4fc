"""The progress protocol of long work."""

from __future__ import annotations

from typing import Protocol


class ProgressBar(Protocol):
    def start(self, description: str, total: int) -> None: ...

    def advance(self, steps: int) -> None: ...
