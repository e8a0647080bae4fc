"""A progress bar on a terminal; a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

_SECONDS = 5.0  # between printed lines if there is no terminal


class Progress:
    """Counts steps of a task: `start(description, total)`, then `advance(n)`."""

    def __init__(self, title: str) -> None:
        console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=None)
        self._title, self._silent = title, not console.is_terminal
        self._description, self._total, self._done = title, 0, 0
        self._last = time.monotonic()

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def start(self, description: str, total: int) -> None:
        """Begin a bar of `total` steps."""
        self._bar.reset(self._task, total=total, description=description)
        self._description, self._total, self._done = description, total, 0
        self._say()

    def advance(self, steps: int) -> None:
        """Move the bar on by so many steps."""
        self._bar.advance(self._task, steps)
        self._done += steps
        self._say()

    def _say(self) -> None:
        """Print a line to standard error every few seconds, if there is no terminal."""
        now = time.monotonic()
        if self._silent and now - self._last >= _SECONDS:
            self._last = now
            line = f"{self._title}: {self._description}, {self._done} of {self._total}\n"
            sys.stderr.write(line)
            sys.stderr.flush()
