"""Which test covers which line, and how long each test takes: one run of the tests, recorded."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("models", "beliefs", "policies")
SOURCE = "src/latentbandits"
TESTS = (
    "tests/unit",
    "tests/property",
    "tests/statistical",
    *(f"{SOURCE}/{package}" for package in PACKAGES),
)
SLOWEST = 4.0
"""Seconds: slower tests are left out, so that a mutant is decided quickly."""
OTHER_ROOMS = (
    "balance", "benchmarks", "clusters", "completion", "demo", "endpoints", "engine", "executor",
    "fit", "formats", "generate", "heldout", "keys", "logs", "lowrank", "movielens", "pages",
    "replay_users", "report", "selection", "served", "spectral", "store", "client", "export",
)  # fmt: skip
"""Tests of other rooms: their files are not run."""


class Recorder:
    """A pytest plugin that records coverage and seconds of every test."""

    def __init__(self) -> None:
        import coverage

        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=None, include=[f"*/latentbandits/{package}/*" for package in PACKAGES]
        )
        self._coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._coverage.switch_context(item.nodeid)
        started = time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - started
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def lines(self) -> dict[str, dict[int, list[str]]]:
        """Return the tests of every line of every file."""
        self._coverage.stop()
        data = self._coverage.get_data()
        root = Path.cwd()
        return {
            str(Path(file).relative_to(root)): {
                line: sorted(test for test in tests if test)
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }


def record(target: Path) -> None:
    """Run the tests once and write what they cover to `target`."""
    recorder = Recorder()
    ignored = [f"--ignore-glob=*test_*{room}*.py" for room in OTHER_ROOMS]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
    pytest.main([*options, "--doctest-modules", *ignored, *TESTS], plugins=[recorder])
    covered = {
        "lines": recorder.lines(),
        "seconds": {
            test: seconds
            for test, seconds in recorder.seconds.items()
            if test not in recorder.failed and seconds < SLOWEST
        },
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(covered))


class Coverage:
    """The recorded coverage: tests of a line, quickest first."""

    def __init__(self, path: Path) -> None:
        recorded = json.loads(path.read_text())
        self.seconds: dict[str, float] = recorded["seconds"]
        self._lines = {
            file: {int(line): tests for line, tests in lines.items()}
            for file, lines in recorded["lines"].items()
        }

    def tests(self, path: str, line: int, in_function: bool) -> list[str]:
        """Return the tests that run a line; of a module's own line, all that run the module."""
        lines = self._lines.get(path, {})
        tests = set(lines.get(line, ())) if in_function else set().union(*lines.values())
        known = [test for test in tests if test in self.seconds]
        return sorted(known, key=lambda test: (self.seconds[test], test))
