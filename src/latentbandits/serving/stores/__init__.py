"""Stores of sessions: in memory, in a SQLite file, in PostgreSQL."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from latentbandits.serving.errors import StoreError
from latentbandits.serving.stores.protocol import LogReader, Store

if TYPE_CHECKING:
    from latentbandits.serving.stores.tables import Tables

__all__ = ["LogReader", "Store", "open_log", "open_store", "open_tables"]

_FORMS = "memory, sqlite:PATH, or postgresql://USER@HOST/DATABASE"


def open_store(url: str, synchronous: str = "FULL", checkpoint_pages: int = 1000) -> Store:
    """Return the store that `url` names: memory, sqlite:PATH or postgresql://...

    >>> open_store("memory").durable
    False
    """
    kind, _, rest = url.partition(":")
    if url == "memory":
        from latentbandits.serving.stores.memory import MemoryStore

        return MemoryStore()
    if kind == "sqlite" and rest:
        from latentbandits.serving.stores.sqlite import SqliteStore, Synchronous

        if synchronous not in ("FULL", "NORMAL"):
            raise StoreError(f"synchronous is FULL or NORMAL; got {synchronous!r}")
        return SqliteStore(rest, cast(Synchronous, synchronous), checkpoint_pages)
    if kind in ("postgresql", "postgres") and rest:
        _need_psycopg()
        from latentbandits.serving.stores.postgresql import PostgresqlStore

        return PostgresqlStore(url)
    raise StoreError(f"{url!r} is not a store: give {_FORMS}")


def open_log(url: str) -> LogReader:
    """Return the decisions of a store, to be read while a service may be writing them."""
    kind, _, rest = url.partition(":")
    if kind == "sqlite" and rest:
        from latentbandits.serving.stores.sqlite import SqliteLog

        return SqliteLog(rest)
    if kind in ("postgresql", "postgres") and rest:
        _need_psycopg()
        from latentbandits.serving.stores.postgresql import PostgresqlLog

        return PostgresqlLog(url)
    raise StoreError(f"{url!r} holds no log that can be read: give {_FORMS.partition(', ')[2]}")


def open_tables(url: str) -> AbstractContextManager[Tables]:
    """Return all tables of a store as of one moment, beside a service that may be writing them."""
    kind, _, rest = url.partition(":")
    if kind == "sqlite" and rest:
        from latentbandits.serving.stores.tables import sqlite_tables

        return sqlite_tables(rest)
    if kind in ("postgresql", "postgres") and rest:
        _need_psycopg()
        from latentbandits.serving.stores.postgresql import postgresql_tables

        return postgresql_tables(url)
    raise StoreError(f"{url!r} is not a store with a file: give {_FORMS.partition(', ')[2]}")


def _need_psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise StoreError(
            "a postgresql store needs psycopg: pip install 'latentbandits[postgresql]'"
        ) from None
