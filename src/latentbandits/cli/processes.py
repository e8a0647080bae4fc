"""Worker processes for commands that compute."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

from latentbandits.models import registry as models
from latentbandits.policies import registry as policies


@contextmanager
def executor(jobs: int) -> Iterator[Executor | None]:
    """Yield an executor of `jobs` worker processes; None if all work is to be done in this one.

    That is so for one job. It is also so where a policy or model that was registered here cannot
    be sent to another process, such as a class that is defined inside a function.
    """
    additions = (policies.added(), models.added())
    if jobs == 1 or not _can_be_sent(additions):
        yield None
        return
    # Forking a process that has threads (polars, BLAS) can deadlock, so processes are spawned.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_register, initargs=additions)
    with _environment(_ONE_THREAD):
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


def _register(entries: tuple[policies.Entry, ...], kinds: tuple[models.ModelClass, ...]) -> None:
    """Register in a worker process what was registered in the process that started it."""
    for entry in entries:
        policies.register(entry)
    for kind in kinds:
        models.register(kind)


def _can_be_sent(value: object) -> bool:
    """Return whether another process can import the classes and functions of `value`."""
    try:
        content = pickle.dumps(value)
    except (AttributeError, TypeError, pickle.PicklingError):
        return False
    return b"__main__" not in content or hasattr(sys.modules["__main__"], "__file__")


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
