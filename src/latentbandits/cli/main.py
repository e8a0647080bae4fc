"""`latentbandits COMMAND`: parse, run, and turn what went wrong into one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from latentbandits import __version__
from latentbandits.cli import export, fit, inspect, key, reproduce, serve, simulate

COMMANDS = (reproduce, fit, inspect, simulate, serve, export, key)
"""Modules with `add_parser(subparsers)`, which sets `run` to a function of the parsed arguments."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 2 bad input."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        return code
    except ModuleNotFoundError as error:
        return _fail(
            f"this command needs the package {error.name!r}, which is not installed: "
            "pip install 'latentbandits[all]'"
        )
    except BrokenPipeError:  # whoever read the output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was written", code=130)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="latentbandits",
        description="Learn offline who your users can be; find out online which one this is.",
    )
    parser.add_argument("--version", action="version", version=f"latentbandits {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def _fail(message: str, code: int = 2) -> int:
    sys.stderr.write(f"latentbandits: {message}\n")
    return code
