"""`latentbandits export --store STORE --out FILE`: the decision log as a table."""

from __future__ import annotations

import argparse
import sys


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits export`."""
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


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits export`; returns the exit code."""
    from latentbandits.cli.check import show_step
    from latentbandits.serving.export import FORMATS, export
    from latentbandits.serving.stores import open_log

    if not arguments.out.endswith(FORMATS):
        raise ValueError(f"--out must end in {', '.join(FORMATS)}; got {arguments.out!r}")
    reader = open_log(arguments.store)
    try:
        done = export(
            reader, arguments.out, arguments.since, lambda rows: show_step(f"{rows:,} decisions")
        )
    finally:
        reader.close()
        show_step("")
    again = f", {done.again} of them with a reward that came later" if done.again else ""
    sys.stdout.write(
        f"{done.rows} decisions in {arguments.out}{again}; next time: --since {done.next}\n"
    )
    return 0
