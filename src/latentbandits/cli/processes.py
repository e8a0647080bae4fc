"""Worker processes for commands that compute."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def executor(jobs: int) -> Iterator[Executor | None]:
    """Yield an executor of `jobs` worker processes; None for one job, which runs in this one."""
    if jobs == 1:
        yield None
        return
    # Forking a process that has threads (polars, BLAS) can deadlock, so processes are spawned.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context)
    with _environment(_ONE_THREAD):
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


# Each worker uses one core; several BLAS threads per worker would oversubscribe the cores.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, unless they are set, for processes that start meanwhile."""
    added = {name: value for name, value in defaults.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
