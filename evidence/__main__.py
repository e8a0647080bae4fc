"""`python -m evidence NAME`: run one experiment and write its report."""

from __future__ import annotations

import sys

from evidence import EXPERIMENTS
from latentbandits.cli.main import run
from latentbandits.cli.reproduce import add_experiments
from latentbandits.options import Parser


def main(argv: list[str] | None = None) -> int:
    """Run an experiment and return its exit code: 0 done, 2 bad input."""
    parser = Parser(prog="python -m evidence", description=__doc__)
    add_experiments(parser, EXPERIMENTS)
    return run(parser, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
