"""Counts of events by the second, in this process, for the last few minutes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from latentbandits.serving.engine.values import RatesView, Second

KEPT = 300
_AVERAGED = 10


class Rates:
    """Count decisions and rewards in each second of the last minutes."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._started = int(clock())
        self._seconds: deque[list[int]] = deque(maxlen=KEPT)  # [second, decisions, rewards]

    def count(self, decisions: int = 0, rewards: int = 0) -> None:
        """Count decisions and rewards of the present second."""
        now = int(self._clock())
        if not self._seconds or self._seconds[-1][0] != now:
            self._seconds.append([now, 0, 0])
        self._seconds[-1][1] += decisions
        self._seconds[-1][2] += rewards

    def view(self) -> RatesView:
        """Return the rates of the last ten whole seconds, and the counts of each second."""
        now = int(self._clock())
        span = max(1, min(_AVERAGED, now - self._started))
        whole = [second for second in self._seconds if now - span <= second[0] < now]
        return RatesView(
            sum(second[1] for second in whole) / span,
            sum(second[2] for second in whole) / span,
            [Second(*second) for second in self._seconds if second[0] > now - KEPT],
        )
