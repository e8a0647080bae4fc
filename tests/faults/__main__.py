"""`python -m tests.faults [--full] [NAME ...]`: the table of what the service survives."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.faults import FAULTS
from tests.faults.table import render


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(f.name for f in FAULTS)}")
    parser.add_argument("--full", action="store_true", help="the full form, about half an hour")
    arguments = parser.parse_args()
    results = []
    for fault in FAULTS:
        if arguments.names and fault.name not in arguments.names:
            continue
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            results += fault.run(Path(folder), arguments.full)
        sys.stderr.write(f"{fault.name}: {time.perf_counter() - begun:.0f} s\n")
    sys.stdout.write(render(results) + "\n")
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
