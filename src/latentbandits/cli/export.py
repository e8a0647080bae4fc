"""`latentbandits export --store STORE --out FILE`: the decision log as a table."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `latentbandits export` and its options."""
    parser = subparsers.add_parser("export", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument("--store", required=True, metavar="STORE", help="sqlite:PATH, postgresql:…")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="file to write: .parquet, .csv or .jsonl"
    )
    parser.add_argument(
        "--since",
        default="",
        metavar="CURSOR",
        help="only decisions and rewards after this cursor, which an earlier export printed",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from latentbandits.serving.export import FORMATS, export
    from latentbandits.serving.stores import open_log

    if not arguments.out.endswith(FORMATS):
        raise ValueError(f"--out must end in {', '.join(FORMATS)}; got {arguments.out!r}")
    reader = open_log(arguments.store)
    try:
        done = export(reader, arguments.out, arguments.since, _show)
    finally:
        reader.close()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    again = f", {done.again} of them with a reward that came later" if done.again else ""
    sys.stdout.write(
        f"{done.rows} decisions in {arguments.out}{again}; next time: --since {done.next}\n"
    )
    return 0


def _show(rows: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{rows:,} decisions")
