"""Stores of sessions, by the scheme of their URL: in memory, in a SQLite file, in PostgreSQL.

Other packages add a store by an entry point of the group `latentbandits.stores`: its name is the
scheme, its value a `StoreKind`. `latentbandits.testing.check_store` checks such a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

from latentbandits.names import Registry
from latentbandits.serving.errors import Refused, StoreError, StoreUnavailable
from latentbandits.serving.stores.protocol import LogReader, Store

if TYPE_CHECKING:
    from latentbandits.serving.stores.sql import SqlReader

__all__ = [
    "LogReader", "Store", "StoreKind", "Writing", "kinds", "open_log", "open_store", "open_tables",
    "opening", "register", "unregister",
]  # fmt: skip
ENTRY_POINTS = "latentbandits.stores"


class Writing(NamedTuple):
    """Settings for writing a store; a store of another package may ignore them.

    `synchronous` and `checkpoint_pages` are for SQLite files. Without `row_checksums`, rows that
    another program altered are not noticed.
    """

    synchronous: str = "FULL"
    checkpoint_pages: int = 1000
    row_checksums: bool = True


class StoreKind(NamedTuple):
    """A kind of store.

    `form` shows how its URLs look, for messages. `open` opens a store to write to, `read` its log
    beside processes that write; both take the whole URL, and raise StoreError where it names no
    such store. A store without `read` cannot be read from another process.
    """

    form: str
    open: Callable[[str, Writing], Store]
    read: Callable[[str], LogReader] | None = None


def _memory(url: str, writing: Writing) -> Store:
    from latentbandits.serving.stores.sqlite import MemoryStore

    if url != "memory":
        raise _is_no_store(url)
    return MemoryStore()


def _sqlite(url: str, writing: Writing) -> Store:
    from latentbandits.serving.stores.sqlite import SqliteStore, Synchronous

    if writing.synchronous not in ("FULL", "NORMAL"):
        raise StoreError(f"synchronous is FULL or NORMAL; got {writing.synchronous!r}")
    synchronous = cast(Synchronous, writing.synchronous)
    store = SqliteStore(_rest(url), synchronous, writing.checkpoint_pages)
    store.summed = writing.row_checksums
    return store


def _sqlite_log(url: str) -> LogReader:
    from latentbandits.serving.stores.sqlite import open_reader

    return open_reader(_rest(url))


def _postgresql(url: str, writing: Writing) -> Store:
    _need_psycopg(url)
    from latentbandits.serving.stores.postgresql import PostgresqlStore

    store = PostgresqlStore(url)
    store.summed = writing.row_checksums
    return store


def _postgresql_log(url: str) -> LogReader:
    _need_psycopg(url)
    from latentbandits.serving.stores.postgresql import PostgresqlReader

    return PostgresqlReader(url)


def _need_psycopg(url: str) -> None:
    _rest(url)
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise StoreError(
            "a postgresql store needs psycopg: pip install 'latentbandits[postgresql]'"
        ) from None


def _rest(url: str) -> str:
    """Return what a URL has after its scheme."""
    rest = url.partition(":")[2]
    if not rest:
        raise _is_no_store(url)
    return rest


_POSTGRESQL = StoreKind("postgresql://USER@HOST/DATABASE", _postgresql, _postgresql_log)
_own = {
    "memory": StoreKind("memory", _memory),
    "sqlite": StoreKind("sqlite:PATH", _sqlite, _sqlite_log),
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
}
_registry: Registry[StoreKind] = Registry("store", ENTRY_POINTS, _own)


def register(scheme: str, kind: StoreKind) -> None:
    """Add a kind of store, whose URLs begin with `scheme` and a colon.

    >>> register("scratch", StoreKind("scratch:", lambda url, writing: open_store("memory")))
    >>> open_store("scratch:").durable
    False
    >>> unregister("scratch")
    """
    _registry.add(scheme, kind)


def unregister(scheme: str) -> None:
    """Remove a kind of store that was added by `register`."""
    _registry.remove(scheme)


def kinds() -> dict[str, StoreKind]:
    """Return all kinds of stores by their schemes: built in, from other packages, registered."""
    return _registry.all()


def _kind(url: str) -> StoreKind:
    scheme = url.partition(":")[0]
    kind = _own.get(scheme) or kinds().get(scheme)
    if kind is None:
        raise _is_no_store(url)
    return kind


def _is_no_store(url: str) -> StoreError:
    return StoreError(f"{url!r} is not a store: give {_forms(kinds())}")


def _forms(of: dict[str, StoreKind]) -> str:
    *forms, last = dict.fromkeys(kind.form for kind in of.values())
    return f"{', '.join(forms)}, or {last}"


def open_store(url: str, writing: Writing = Writing()) -> Store:  # noqa: B008 - a frozen value
    """Return the store that `url` names: memory, sqlite:PATH, postgresql://... or a registered one.

    >>> open_store("memory").durable
    False
    """
    return _kind(url).open(url, writing)


@contextmanager
def opening(url: str, writing: Writing) -> Iterator[Store]:
    """Yield a store; if the block fails, close the store and turn a refusal into a ValueError."""
    store = open_store(url, writing)
    try:
        yield store
    except BaseException as error:
        store.close()
        if isinstance(error, Refused):
            raise ValueError(error.message) from None
        raise


def open_log(url: str) -> LogReader:
    """Return the decisions of a store, to be read while a service may be writing them."""
    kind = _kind(url)
    if kind.read is None:
        readable = {scheme: one for scheme, one in kinds().items() if one.read is not None}
        raise StoreError(f"{url!r} holds no log that can be read: give {_forms(readable)}")
    return kind.read(url)


@contextmanager
def open_tables(url: str) -> Iterator[SqlReader]:
    """Open all tables of a store as of one moment, while a service may be writing them."""
    from latentbandits.serving.stores.sql import SqlReader

    reader = open_log(url)
    try:
        if not isinstance(reader, SqlReader):
            raise StoreError(f"{url!r} is no SQL store: `check` and `backup` cannot read it")
        try:
            reader.freeze()
        except StoreUnavailable as error:
            raise StoreError(error.message) from None
        yield reader
    finally:
        reader.close()
