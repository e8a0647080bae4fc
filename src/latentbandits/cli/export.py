"""`latentbandits export --store STORE --out FILE`: the decision log as a table."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("export", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument("--store", required=True, metavar="STORE", help="sqlite:PATH, postgresql:…")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="Parquet file to write (.parquet)"
    )
    parser.add_argument("--since", default="", metavar="ID", help="only decisions after this one")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from latentbandits.serving.export import export
    from latentbandits.serving.stores import open_log

    if not arguments.out.endswith(".parquet"):
        raise ValueError(f"--out must end in .parquet; got {arguments.out!r}")
    reader = open_log(arguments.store)
    try:
        count = export(reader, arguments.out, arguments.since)
    finally:
        reader.close()
    sys.stdout.write(f"{count} decisions in {arguments.out}\n")
    return 0
