"""Copy a store, as of one moment, beside the service that writes it; also to restore it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from latentbandits.serving.errors import Refused, StoreError
from latentbandits.serving.stores.protocol import SHARED, STORE_ID
from latentbandits.serving.stores.sql import TABLES, SqlReader, SqlStore, paged


def backup(
    tables: SqlReader,
    out: str,
    open_store: Callable[[str], SqlStore],
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, int]:
    """Copy every row to the new store `out`; every checksum is verified on the way.

    A SQLite copy appears under its name when it is complete and on the disk. Returns the number
    of rows of each table.
    """
    kind, _, path = out.partition(":")
    if kind != "sqlite":
        return _copied(tables, open_store(out), progress)
    target = Path(path)
    if target.exists():
        raise StoreError(f"{target} exists already: give the copy a name of its own")
    part = target.with_name(f".{target.name}.part")
    _remove(part)
    try:
        counts = _copied(tables, open_store(f"sqlite:{part}"), progress)
        _sync(part)
        part.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        _remove(part)
    return counts


def _copied(tables: SqlReader, store: SqlStore, progress: Callable[[str], None]) -> dict[str, int]:
    counts = {}
    try:
        store.begin()
        if store.note(STORE_ID) is not None or store.note(SHARED) is not None:
            raise StoreError("the target is a store already: give an empty one")
        for table in TABLES:
            progress(table.name)
            rows = paged(tables.run, table.listed(), table.name, table.columns[0])
            counts[table.name] = store.insert(table.insert, map(table.verified, rows))
        progress("stream")
        rows = paged(tables.run, "position, kind, id", "stream", "position")
        insert = "INSERT INTO stream (position, kind, id) VALUES (?, ?, ?)"
        counts["stream"] = store.insert(insert, rows)
        end = tables.end()
        store.continue_sequences(end)
        store.leave_cursors(end)
        store.commit()
    except Refused as refusal:
        raise StoreError(refusal.message) from None
    finally:
        store.close()
    return counts


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm", ".lock", ".mark"):
        Path(f"{path}{end}").unlink(missing_ok=True)
