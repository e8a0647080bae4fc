"""`latentbandits check --store STORE`: verify a store, also beside a running service."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `latentbandits check` and its options."""
    parser = subparsers.add_parser(
        "check",
        help=__doc__.split(": ", 1)[1],
        description="Verify the checksums of all rows and pages, the totals of sessions, the "
        "stream, the hashes of models, and snapshots against the replay of their log. Exit code "
        "0: all is well; 1: problems were found, each on a line of its own.",
    )
    parser.add_argument("--store", required=True, metavar="STORE", help="sqlite:PATH, postgresql:…")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from latentbandits.serving.check import check
    from latentbandits.serving.stores import open_tables

    with open_tables(arguments.store) as tables:
        counts, problems = check(tables, show)
    show("")
    if arguments.json:
        sys.stdout.write(json.dumps({"counts": counts, "problems": problems}) + "\n")
        return 1 if problems else 0
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    verified = ", ".join(f"{count} {name}" for name, count in counts.items())
    notes = sum(problem.startswith("note: ") for problem in problems)
    wrong = len(problems) - notes
    sys.stdout.write(f"{wrong} problems in {verified}\n" if wrong else f"all is well: {verified}\n")
    return 1 if wrong else 0


def show(step: str) -> None:
    """Show the step that is under way, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{step}")
