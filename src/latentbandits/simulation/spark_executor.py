"""An executor that runs chunks of a simulation as tasks of a Spark session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_UNDER_WAY = 8
"""Jobs that are handed to Spark at once; `simulate` has no more under way."""


class SparkExecutor(Executor):
    """Submits each call as a job of one task: `simulate(..., executor=SparkExecutor(session))`.

    The workers need latentbandits, and the interpreter that the driver runs. Any
    executor gives the same results: a chunk's random streams follow from its number. The session
    stays open.

    Args:
        session: a SparkSession.
        jobs: number of concurrent calls.
    """

    def __init__(self, session: Any, jobs: int = _UNDER_WAY) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._context = session.sparkContext
        self._threads = ThreadPoolExecutor(jobs)

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Run `fn(*args, **kwargs)` on a worker."""

        def on_worker(_: int) -> _T:
            return fn(*args, **kwargs)

        def job() -> _T:
            results: list[_T] = self._context.parallelize([0], 1).map(on_worker).collect()
            return results[0]

        return self._threads.submit(job)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for running jobs; the Spark session stays open."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
