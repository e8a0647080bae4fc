"""Fixtures that start real servers, once for each worker, and one that makes fits cheaper."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.processes.postgresql import find_binaries, postgresql

hypothesis.settings.register_profile("shared machines", deadline=None)
hypothesis.settings.load_profile("shared machines")

ONLY_TEST_ALL = (
    "browser",
    "packaging",
    "endtoend/test_editors.py",
    "endtoend/test_kubernetes.py",
    "endtoend/test_typescript.py",
    "endtoend/test_loop_kills.py",
    "unit/test_spark_engine.py",
)
"""Tests that need a browser, Spark, Node or an editor, kill servers, or install packages."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make test` leaves to `make test-all`, those of PostgreSQL too."""
    folders = [Path(__file__).parent / name for name in ONLY_TEST_ALL]
    for item in items:
        listed = any(folder == item.path or folder in item.path.parents for folder in folders)
        if listed or "postgresql" in item.name:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through the thousands of collected tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def few_tuned_users() -> Iterator[None]:
    """Simulate few of the users with whom `fit` compares policies.

    That is most of the time of a fit of a small log. Tests that use this fixture ask for the model
    and the report; how good the recommended policy is, is tested with all users
    (`tests/statistical`).
    """
    from latentbandits.learning.assess import tournament

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tournament, "EFFORT", tournament.EFFORT / 10)
        patch.setattr(tournament, "_SIMULATED_USERS", 200)
        yield


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("NO POSTGRESQL: install it (apt install postgresql) to test this store")
    with postgresql(binaries) as url:
        yield url


@pytest.fixture
def postgresql_url(postgresql_server: str) -> str:
    """An empty database."""
    import psycopg

    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS fresh WITH (FORCE)")
        connection.execute("CREATE DATABASE fresh")
    return postgresql_server.rpartition("/")[0] + "/fresh"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of what the service survived, wherever faults were among the tests."""
    from tests.faults.table import Result, render

    results = [
        Result(*value)
        for reports in (terminalreporter.stats.get(kind, []) for kind in ("passed", "failed"))
        for report in reports
        for name, value in getattr(report, "user_properties", [])
        if name == "fault"
    ]
    if results:
        terminalreporter.section("what the service survived")
        terminalreporter.write_line(render(results))
