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
    *(
        f"tests/unit/test_{name}.py"
        for name in (
            "any_model", "bayes_ucb", "beliefs", "catalogue", "check_model", "defects", "draws",
            "exploring", "families", "model_registry", "models", "moving_states", "model_numbers",
            "planning", "policies", "population", "quadrature", "registry", "structured",
        )
    ),
    "tests/property/test_information.py",
    "tests/property/test_quadrature.py",
    *(f"{SOURCE}/{package}" for package in PACKAGES),
    *(
        f"tests/unit/test_{name}.py"
        for name in (
            "cofiba_nmf", "subspace", "rank1", "particle_mf", "phased", "newcomers",
            "new_models_conform", "artefacts",
        )
    ),
    "tests/property/test_encoding.py",
    "tests/statistical/test_gamma_draws.py",
)  # fmt: skip
"""Tests of these packages that are quick for what they notice."""
LEFT_OUT = " and ".join(
    f"not {name}"
    for name in ("every_flipped_bit", "planted_bug", "huge_rewards", "any_number_of_sessions")
)
"""Slow tests that notice nothing more."""
SLOWEST = 4.0
"""Seconds: slower tests are left out, so that a mutant is decided quickly."""


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


def record(target: Path, part: int = 0, parts: int = 1) -> None:
    """Run the tests once, or a part of them, and write what they cover to `target`."""
    recorder = Recorder()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "-k", LEFT_OUT]
    pytest.main([*options, "--doctest-modules", *TESTS[part::parts]], plugins=[recorder])
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

    def __init__(self, paths: list[Path]) -> None:
        self.seconds: dict[str, float] = {}
        self._lines: dict[str, dict[int, set[str]]] = {}
        for path in paths:
            recorded = json.loads(path.read_text())
            self.seconds |= recorded["seconds"]
            for file, lines in recorded["lines"].items():
                known = self._lines.setdefault(file, {})
                for line, tests in lines.items():
                    known.setdefault(int(line), set()).update(tests)

    def tests(self, path: str, line: int, in_function: bool) -> list[str]:
        """Return the tests that run a line; of a module's own line, all that run the module."""
        lines = self._lines.get(path, {})
        tests = set(lines.get(line, ())) if in_function else set().union(*lines.values())
        known = [test for test in tests if test in self.seconds]
        return sorted(known, key=lambda test: (self.seconds[test], test))
