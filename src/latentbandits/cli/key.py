"""`latentbandits key NAME`: make an API key; only its hash is kept."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `latentbandits key` and its options."""
    parser = subparsers.add_parser("key", help=__doc__.split(": ", 1)[1], description=__doc__)
    parser.add_argument("name", metavar="NAME", help="what the key is for")
    parser.add_argument("--keys", required=True, metavar="FILE", help="TOML file to add it to")
    parser.add_argument(
        "--scopes",
        default="decide,reward",
        help="comma-separated, of decide, reward, read, admin (default decide,reward)",
    )
    parser.add_argument(
        "--sessions", default="", metavar="PREFIX", help="only sessions whose id begins so"
    )
    parser.add_argument(
        "--rate", type=float, metavar="N", help="at most N decisions and rewards per second"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from latentbandits.serving.http.keys import add_key

    scopes = [scope.strip() for scope in arguments.scopes.split(",") if scope.strip()]
    made = add_key(arguments.keys, arguments.name, scopes, arguments.sessions, arguments.rate)
    sys.stdout.write(f"{made}\n")
    sys.stderr.write(
        f"Keep it: {arguments.keys} has only its hash. A running service reads the new file.\n"
    )
    return 0
