"""Run the covering tests of mutants, each in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from tools.mutation.mutants import Mutant, mutated_tree

BUDGET = 25.0
"""Seconds of covering tests that a mutant gets, the quickest first."""
MOST_TESTS = 150
TIMEOUT_SECONDS = 90.0
"""A mutant that runs longer than this, and than ten times its tests, counts as noticed."""


class MutatedModule(MetaPathFinder, Loader):
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


def preload() -> None:
    """Import what every test needs and no mutant changes, once."""
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import safetensors.numpy  # noqa: F401
    import scipy.integrate
    import scipy.special
    import scipy.stats  # noqa: F401


def chosen(tests: list[str], seconds: dict[str, float]) -> list[str]:
    """Return the quickest tests, as many as the budget allows."""
    picked, total = [], 0.0
    for test in tests[:MOST_TESTS]:
        total += seconds[test]
        if picked and total > BUDGET:
            break
        picked.append(test)
    return picked


def outcome(mutant: Mutant, tests: list[str], seconds: dict[str, float]) -> str:
    """Return "killed", "survived" or "timeout"."""
    limit = max(TIMEOUT_SECONDS, 10 * sum(seconds[test] for test in tests))
    child = os.fork()
    if child == 0:
        _run_child(mutant, tests)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _run_child(mutant: Mutant, tests: list[str]) -> None:
    status = 70
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.meta_path.insert(0, MutatedModule(mutant))
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]
        status = int(pytest.main([*options, "--hypothesis-seed=0", "--doctest-modules", *tests]))
    finally:
        os._exit(status)
