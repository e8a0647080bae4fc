"""Fixtures that start real servers, once for each worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes.postgresql import find_binaries, postgresql


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
