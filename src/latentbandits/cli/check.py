"""`latentbandits check --store STORE`: verify a store, also beside a running service.

Verify the checksums of all rows and pages, the totals of sessions, the stream, the hashes of
models, and snapshots against the replay of their log. Exit code 0: all is well; 1: problems were
found, each on a line of its own.
"""

from __future__ import annotations

import argparse
import json
import sys

from latentbandits.options import add_json


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits check`."""
    parser.add_argument("--store", required=True, metavar="STORE", help="sqlite:PATH, postgresql:…")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits check`; returns the exit code."""
    from latentbandits.serving.check import check
    from latentbandits.serving.stores import open_tables

    with open_tables(arguments.store) as tables:
        counts, problems = check(tables, show_step)
    show_step("")
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


def show_step(step: str) -> None:
    """Show the step that is under way, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{step}")
