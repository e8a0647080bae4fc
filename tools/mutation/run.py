"""Run the covering tests of mutants, each in a forked process.

All tests are imported and collected once. A mutant of a function replaces the code of that function
in a fork of this process (`WarmTests`). A mutant of a module's or a class's own lines, or of a
default value, is imported anew in a fork of a process that has not imported the library (`cold`).
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tools.mutation.covering import PYTEST_OPTIONS, QuickHypothesis, test_files
from tools.mutation.mutants import Mutant, mutated_tree, original_tree

START_SECONDS = 15.0
"""Processor seconds allowed besides ten times the normal ones of the tests."""
MEMORY_BYTES = 6 * 2**30
Outcome = tuple[str, str]
"""One of "killed", "timeout" and "survived", and the test that failed."""


def chosen(tests: list[str], seconds: dict[str, float], budget: float) -> list[str]:
    """Return the first tests, as many as the budget of processor seconds allows."""
    picked, total = [], 0.0
    for test in tests:
        if picked and total + seconds[test] > budget:
            continue
        total += seconds[test]
        picked.append(test)
    return picked


class WarmTests:
    """A pytest plugin that hands the collected tests to `job` instead of running them."""

    def __init__(self, job: Callable[[WarmTests], None]) -> None:
        self._job = job
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        self._caches: list[_lru_cache_wrapper[object]] = []
        self._done = False
        self._report: Callable[[str], None] | None = None

    def run(self) -> None:
        """Collect all tests and run the job, in a process that ends with it."""
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            if status:
                raise SystemExit("the run of the mutants failed")
            return
        pytest.main(["-s", *PYTEST_OPTIONS, *test_files()], plugins=[QuickHypothesis(), self])
        sys.stdout.flush()
        os._exit(0 if self._done else 1)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        for result in gc.get_objects():
            if isinstance(result, FunctionType):
                self._functions.setdefault(_place(result.__code__), []).append(result)
            elif isinstance(result, _lru_cache_wrapper):
                self._caches.append(result)
        gc.collect()
        gc.freeze()
        self._job(self)
        self._done = True
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._report is not None:
            self._report(report.nodeid)

    def outcome(
        self, mutant: Mutant | None, tests: list[str], seconds: dict[str, float]
    ) -> Outcome:
        """Run tests on a mutant, or on the unchanged source, until one fails."""

        def run(report: Callable[[str], None]) -> int:
            self._report = report
            if mutant is not None:
                self._change(mutant)
            items = [self._items[test] for test in tests]
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            return 0

        return _in_child(run, sum(seconds[test] for test in tests))

    def _change(self, mutant: Mutant) -> None:
        old_module, new_module = _codes(mutant)
        for old, new in _changed_codes(old_module, new_module):
            for function in self._functions.get(_place(old), ()):
                function.__code__ = new
        for cached in self._caches:  # results of the unchanged functions
            cached.cache_clear()


def cold(mutant: Mutant, tests: list[str], seconds: dict[str, float]) -> Outcome:
    """Run tests on a mutant that is imported from its syntax tree."""

    def run(report: Callable[[str], None]) -> int:
        reporter = _Reporter(report, _MutatedModule(mutant))
        options = ["-x", *PYTEST_OPTIONS, *tests]
        return int(pytest.main(options, plugins=[QuickHypothesis(), reporter]))

    return _in_child(run, sum(seconds[test] for test in tests))


class _Reporter:
    """Puts the mutated module before what pytest imports, and reports the first failure."""

    def __init__(self, report: Callable[[str], None], finder: _MutatedModule) -> None:
        self._report, self._finder = report, finder
        sys.meta_path.insert(0, finder)  # for conftest.py

    def pytest_sessionstart(self) -> None:
        sys.meta_path.insert(0, self._finder)  # before pytest's own import of doctests

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._report(report.nodeid)


class _MutatedModule(MetaPathFinder, Loader):
    """Imports one module from its mutated syntax tree, all others as usual."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        parts = Path(mutant.path).with_suffix("").parts[1:]
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:  # type: ignore[no-untyped-def]
        if name != self._name:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        spec.loader = self
        return spec

    def exec_module(self, module) -> None:  # type: ignore[no-untyped-def]
        tree = mutated_tree(self._mutant.path, self._mutant.index)
        exec(compile(tree, self._mutant.path, "exec"), vars(module))  # our own source, changed


def _in_child(run: Callable[[Callable[[str], None]], int], seconds: float) -> Outcome:
    """Fork, run, and read how it ended; the processor time and the memory are limited."""
    limit = START_SECONDS + 10 * seconds
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(run, writing, int(limit))
    os.close(writing)
    deadline = time.monotonic() + 20 * limit
    while not (finished := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            finished = os.waitpid(child, 0)
            break
        time.sleep(0.005)
    with os.fdopen(reading) as pipe:
        test = pipe.read()
    status = os.waitstatus_to_exitcode(finished[1])
    if status == 0:
        return "survived", ""
    slow = status in (-signal.SIGXCPU, -signal.SIGKILL)
    return ("timeout" if slow else "killed"), test


def _be_child(run: Callable[[Callable[[str], None]], int], writing: int, limit: int) -> None:
    status = 70

    def report(test: str) -> None:
        os.write(writing, test.encode())
        os._exit(1)

    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        status = run(report)
    finally:
        os._exit(status)


def _codes(mutant: Mutant) -> tuple[CodeType, CodeType]:
    file = str(Path(mutant.path).absolute())
    old = compile(original_tree(mutant.path), file, "exec")
    return old, compile(mutated_tree(mutant.path, mutant.index), file, "exec")


def _changed_codes(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the pairs of code objects, outermost first, that differ in themselves or inside."""
    if old == new:
        return
    yield old, new
    before = [c for c in old.co_consts if isinstance(c, CodeType)]
    after = [c for c in new.co_consts if isinstance(c, CodeType)]
    for inner_old, inner_new in zip(before, after, strict=True):
        yield from _changed_codes(inner_old, inner_new)


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno
