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
