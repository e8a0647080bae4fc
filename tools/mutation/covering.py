"""Record which test runs which line, and how long each test takes.

The record of a test file is kept until the file, the source, the reference loops or the checks of
`latentbandits.testing` change.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import Any

import pytest

from tools.mutation.mutants import Mutant

PACKAGES = ("models", "beliefs", "policies")
SOURCE = "src/latentbandits"
UNIT = (
    "any_model", "artefacts", "bayes_ucb", "beliefs", "by_hand", "catalogue", "check_model",
    "decision_tables", "defaults", "defects", "draws", "drift", "exploring",
    "exports", "families", "growing", "laws", "many_actions", "model_numbers", "model_registry",
    "models", "models_by_hand", "moving_states", "new_models_conform", "newcomers",
    "old_artefacts", "phased", "planning", "policies", "policies_by_hand",
    "population", "populations_by_hand", "quadrature", "registry", "replacing",
    "reward_range", "subspace", "together", "toys", "user_attributes",
    "users_of_model",
)  # fmt: skip
OF_DEFAULTS = "tests/unit/test_defaults.py"
"""These tests read signatures, which no coverage shows."""
PROPERTY = ("beliefs", "encoding", "families", "information", "quadrature")
STATISTICAL = ("gamma_draws", "particles", "posterior_draws", "sampling")
PYTEST_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow",
                  "--no-header", "--doctest-modules")  # fmt: skip
SLOWEST = 8.0
"""Tests that need more processor seconds than this are left out."""


def test_files() -> list[str]:
    """Return the test files that mutants meet: no server, no experiment, no slow statistics."""
    named = [
        *(f"tests/unit/test_{name}.py" for name in UNIT),
        *(f"tests/property/test_{name}.py" for name in PROPERTY),
        *(f"tests/statistical/test_{name}.py" for name in STATISTICAL),
    ]
    return named + source_files()


def source_files() -> list[str]:
    """Return the files whose mutants are tested."""
    return sorted(str(path) for package in PACKAGES for path in Path(SOURCE, package).rglob("*.py"))


class QuickHypothesis:
    """A pytest plugin: hypothesis repeats itself, and does not shrink a failure."""

    def pytest_sessionstart(self) -> None:
        from hypothesis import HealthCheck, Phase, settings

        settings.register_profile(
            "mutation", database=None, deadline=None, derandomize=True,
            phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        settings.load_profile("mutation")


class Recorder:
    """A pytest plugin that records the covered lines and the processor seconds of every test."""

    def __init__(self) -> None:
        import coverage

        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=None, include=[f"*/latentbandits/{package}/*" for package in PACKAGES]
        )
        self._coverage.start()
        self._caches: list[_lru_cache_wrapper[object]] | None = None

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        if self._caches is None:
            objects = gc.get_objects()
            self._caches = [one for one in objects if isinstance(one, _lru_cache_wrapper)]
        for cached in self._caches:  # so that each test runs the lines of functions with a cache
            cached.cache_clear()
        self._coverage.switch_context(item.nodeid)
        started = time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - started
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.failed.add(report.nodeid)

    def lines(self) -> dict[str, dict[str, list[int]]]:
        """Return the lines of every source file that every test runs."""
        self._coverage.stop()
        data = self._coverage.get_data()
        by_test: dict[str, dict[str, list[int]]] = {}
        for file in data.measured_files():
            name = str(Path(file).relative_to(Path.cwd()))
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    by_test.setdefault(test, {}).setdefault(name, []).append(line)
        return by_test


def record(folder: Path) -> None:
    """Run the tests that have no valid record, in a process of their own."""
    stale = {file: target for file, target in _targets(folder).items() if not target.exists()}
    if not stale:
        return
    child = os.fork()
    if child == 0:
        try:
            _record(stale)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit("recording the coverage failed")


def _record(targets: dict[str, Path]) -> None:
    recorder = Recorder()
    pytest.main([*PYTEST_OPTIONS, *targets], plugins=[QuickHypothesis(), recorder])
    lines = recorder.lines()
    by_file: dict[str, dict[str, Any]] = {file: {} for file in targets}
    for test, seconds in recorder.seconds.items():
        if test not in recorder.failed and seconds < SLOWEST:
            entry = {"seconds": seconds, "lines": lines.get(test, {})}
            by_file[test.partition("::")[0]][test] = entry
    for file, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps(by_file[file]))
        partial.replace(target)
    for test in sorted(recorder.failed):
        sys.stdout.write(f"not used, because it fails or is skipped without a change: {test}\n")
    sys.stdout.flush()


def _targets(folder: Path) -> dict[str, Path]:
    """Return the file that holds the record of each test file, named by all that it depends on."""
    folders = (Path("tests/reference"), Path(SOURCE, "testing"))
    others = sorted(str(path) for folder in folders for path in folder.rglob("*.py"))
    shared = _digest([*source_files(), *others])
    return {
        file: folder / f"{Path(file).stem}-{_digest([file])}-{shared}.json" for file in test_files()
    }


def _digest(files: Iterable[str]) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(file.encode() + b"\0" + Path(file).read_bytes())
    return total.hexdigest()[:12]


class Coverage:
    """The recorded coverage: the tests of a line, in the order in which a mutant meets them."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self._version: dict[str, str] = {}  # digest of the file of each test
        self._lines: dict[str, dict[int, set[str]]] = {}
        for file, target in _targets(folder).items():
            for test, entry in json.loads(target.read_text()).items():
                self.seconds[test] = entry["seconds"]
                self._version[test] = _digest([file])
                for source, lines in entry["lines"].items():
                    known = self._lines.setdefault(source, {})
                    for line in lines:
                        known.setdefault(line, set()).add(test)

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the changed lines, or, if none is recorded, the statement."""
        lines = self._lines.get(mutant.path, {})
        tests = set().union(*(lines.get(i, ()) for i in range(mutant.line, mutant.end + 1)))
        if not tests:
            tests = set().union(*(lines.get(i, ()) for i in range(mutant.statement, mutant.line)))
        return self._quickest(tests)

    def tests_of_module(self, path: str) -> list[str]:
        """Return the tests that run any line of a module, after those of default values."""
        first = [test for test in self.seconds if test.startswith(OF_DEFAULTS)]
        others = self._quickest(set().union(*self._lines.get(path, {}).values()))
        return first + [test for test in others if not test.startswith(OF_DEFAULTS)]

    def versioned(self, test: str) -> str:
        """Return the name of a test with the version of its file."""
        return f"{test} {self._version[test]}"

    def _quickest(self, tests: set[str]) -> list[str]:
        """Return the quickest case of each test first, then the second of each, and so on."""
        quickest = sorted(tests & set(self.seconds), key=lambda test: (self.seconds[test], test))
        seen: Counter[str] = Counter()
        turns: dict[str, int] = {}
        for test in quickest:
            function = test.partition("[")[0]
            turns[test] = seen[function]
            seen[function] += 1
        return sorted(quickest, key=lambda test: (turns[test], self.seconds[test]))
