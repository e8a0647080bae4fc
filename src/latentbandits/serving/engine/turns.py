"""Turns of the event loop and the writer's thread, which share one interpreter."""

from __future__ import annotations

import threading

_LONGEST = 0.01  # seconds that one thread waits for the other, at most


class Turns:
    """Let the two threads run Python one after the other, where they would compete for it.

    Only one of them can hold the interpreter lock. On two processors, passing it to and fro at
    every system call took a third of all processor time. So the loop waits while the writer
    decides and learns, and goes on while a commit waits for the disk; the writer begins its next
    batch when the answers of the last one are sent. No wait is longer than 10 ms, so a store that
    hangs does not stop the loop.

    Args:
        on: whether to wait at all; not where the writer itself waits for a network.
    """

    def __init__(self, *, on: bool) -> None:
        self._longest = _LONGEST if on else 0.0
        self.writer_is_idle = False
        self._decided = threading.Event()
        self._answered = threading.Event()
        self._answered.set()

    # methods for the writer

    def decided(self) -> None:
        """Let the loop go on: from here the writer waits for the disk."""
        if not self._decided.is_set():  # a test is cheaper than to set it again
            self._decided.set()

    def expect_answers(self) -> None:
        """Take note that the loop is about to get answers to send."""
        self._answered.clear()

    def await_answers(self) -> None:
        """Wait until the loop has sent the answers."""
        self._answered.wait(self._longest)

    # methods for the event loop

    def expect_decisions(self) -> None:
        """Take note that the writer is about to begin a batch."""
        self._decided.clear()

    def answered(self) -> None:
        """Let the writer begin its next batch."""
        self._answered.set()

    def await_decisions(self) -> None:
        """Wait until the writer has decided."""
        self._decided.wait(self._longest)
