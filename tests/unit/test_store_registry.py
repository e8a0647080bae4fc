"""Stores of other packages: by an entry point or by `register`, opened by the scheme of a URL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from latentbandits.serving.embedding import embed
from latentbandits.serving.errors import StoreError
from latentbandits.serving.stores import (
    StoreKind,
    kinds,
    open_log,
    open_store,
    open_tables,
    register,
    unregister,
)
from latentbandits.serving.stores.sqlite import MemoryStore
from latentbandits.testing import check_store
from tests.unit.engine_driver import ARMS

PACKAGE = '''
from latentbandits.serving.stores import StoreKind
from latentbandits.serving.stores.sqlite import SqliteStore, open_reader

def path(url):
    return url.partition(":")[2]

class Loud(SqliteStore):
    """A store of somebody else."""

STORE = StoreKind(
    "loud:PATH", lambda url, writing: Loud(path(url)), lambda url: open_reader(path(url))
)
'''
USE = """
import sys
from latentbandits.serving.stores import open_log, open_store
from latentbandits.testing import check_store
url = sys.argv[1]
assert type(open_store("memory")).__name__ == "MemoryStore"
check_store(lambda: open_store(url))
reader = open_log(url)
print(type(open_store(url)).__name__, reader.end() > 0)
reader.close()
try:
    open_store("laud:x")
except ValueError as error:
    print(error)
"""


def test_a_package_brings_a_store(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(PACKAGE)
    told = tmp_path / "loud-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[latentbandits.stores]\nloud = loud:STORE\n")
    code = f"import sys\nsys.path[:0] = {[str(tmp_path), *sys.path]}\n{USE}"
    done = subprocess.run(
        [sys.executable, "-c", code, f"loud:{tmp_path}/s"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    opened, unknown = done.stdout.splitlines()
    assert opened == "Loud True"
    assert unknown == (
        "'laud:x' is not a store: give memory, sqlite:PATH, postgresql://USER@HOST/DATABASE, "
        "or loud:PATH"
    )


def test_a_registered_store_serves_and_is_refused_where_it_cannot_be_read() -> None:
    kept: list[MemoryStore] = []

    def opened_anew(url: str, writing: object) -> MemoryStore:
        kept.append(MemoryStore())
        return kept[-1]

    register("kept", StoreKind("kept:", opened_anew))
    try:
        check_store(lambda: open_store("kept:"))
        assert embed(ARMS, store="kept:").service.engine.store is kept[-1]
        for opened in (open_log, lambda url: open_tables(url).__enter__()):
            with pytest.raises(StoreError, match=r"holds no log that can be read: give sqlite:"):
                opened("kept:")
        assert "kept" in kinds()
    finally:
        unregister("kept")
    with pytest.raises(StoreError, match="is not a store"):
        open_store("kept:")
    with pytest.raises(ValueError, match="is a store of latentbandits"):
        register("sqlite", kinds()["memory"])


def test_a_store_that_is_not_sql_can_be_exported_only() -> None:
    class Log:
        def close(self) -> None:
            """Do nothing."""

    register("log", StoreKind("log:", lambda url, writing: MemoryStore(), lambda url: Log()))  # type: ignore[arg-type, return-value]
    try:
        assert isinstance(open_log("log:"), Log)
        with pytest.raises(StoreError, match="is no SQL store: `check` and `backup`"):
            open_tables("log:").__enter__()
    finally:
        unregister("log")


def test_rows_without_checksums(tmp_path: Path) -> None:
    """An embedded service has the setting as well."""
    path = tmp_path / "s.sqlite"
    bandit = embed(ARMS, store=f"sqlite:{path}", row_checksums=False)
    store = bandit.service.engine.store
    assert store._run("SELECT DISTINCT checksum FROM models") == [(-1,)]  # type: ignore[attr-defined]
    store.close()
