"""`latentbandits backup --store STORE --out STORE`: copy a store, also beside a running service.

Copy a store as of one moment and verify every checksum on the way. To restore, start the service
on the copy, or copy it back to an empty store.
"""

from __future__ import annotations

import argparse
import sys


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits backup`."""
    parser.add_argument("--store", required=True, metavar="STORE", help="sqlite:PATH, postgresql:…")
    parser.add_argument(
        "--out", required=True, metavar="STORE", help="new store: sqlite:PATH or an empty database"
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits backup`; returns the exit code."""
    from typing import cast

    from latentbandits.cli.check import show_step
    from latentbandits.serving.backup import backup
    from latentbandits.serving.stores import open_store, open_tables
    from latentbandits.serving.stores.sql import SqlStore

    out = arguments.out
    if ":" not in out:
        out = f"sqlite:{out}"
    if out.partition(":")[0] not in ("sqlite", "postgresql", "postgres"):
        raise ValueError(f"--out must be sqlite:PATH or postgresql://...; got {arguments.out!r}")
    with open_tables(arguments.store) as tables:
        counts = backup(tables, out, lambda url: cast(SqlStore, open_store(url)), show_step)
    show_step("")
    copied = ", ".join(f"{count} {name}" for name, count in counts.items())
    sys.stdout.write(f"copied {copied} to {arguments.out}\n")
    return 0
