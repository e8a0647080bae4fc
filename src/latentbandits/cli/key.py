"""`latentbandits key NAME`: make an API key; only its hash is kept."""

from __future__ import annotations

import argparse
import sys


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits key`."""
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


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits key`; returns the exit code."""
    from latentbandits.serving.http.keys import add_key

    scopes = [scope.strip() for scope in arguments.scopes.split(",") if scope.strip()]
    made = add_key(arguments.keys, arguments.name, scopes, arguments.sessions, arguments.rate)
    sys.stdout.write(f"{made}\n")
    sys.stderr.write(
        f"Keep it: {arguments.keys} has only its hash. A running service reads the new file.\n"
    )
    return 0
