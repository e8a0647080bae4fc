"""`latentbandits COMMAND`: parse, run, and report an error in one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from latentbandits import __version__, extras

COMMANDS = (
    "reproduce", "start", "fit", "inspect", "simulate", "tune", "evaluate", "serve", "export",
    "relearn", "check", "backup", "key",
)  # fmt: skip
"""Modules of this package with `add_options(parser)` and `run(arguments)`. The first line of a
module's docstring is the help of its command, what follows it the description."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 2 bad input."""
    words = list(sys.argv[1:] if argv is None else argv)
    names = tuple(words[:1]) if words and words[0] in COMMANDS else COMMANDS
    try:
        parser = build_parser(names)
    except ModuleNotFoundError as error:
        return _missing(error, words)
    return run(parser, words)


def run(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Parse the words, call the `run` that the command has set, and report an error in one line."""
    try:
        arguments, rest = parser.parse_known_args(words)
        if rest and "moved" not in arguments:
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        code: int = arguments.run(arguments)
        return code
    except ModuleNotFoundError as error:
        return _missing(error, words)
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was written", code=130)


def build_parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of these commands: a command that is asked for need not load the others."""
    parser = argparse.ArgumentParser(
        prog="latentbandits",
        description="Learn offline who your users can be; find out online which one this is.",
    )
    parser.add_argument("--version", action="version", version=f"latentbandits {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    wanted = list(commands)
    for command in wanted:
        try:
            _add(subparsers, command)
        except ModuleNotFoundError:  # an extra is missing: reported when the command is used
            if len(wanted) == 1:
                raise
    return parser


def _add(subparsers: Any, command: str) -> None:
    module = import_module(f"latentbandits.cli.{command}")
    line, _, rest = str(module.__doc__).partition("\n\n")
    parser = subparsers.add_parser(command, help=line.split(": ", 1)[1], description=rest or line)
    parser.set_defaults(run=module.run)
    module.add_options(parser)


def _missing(error: ModuleNotFoundError, words: Sequence[str]) -> int:
    command = words[0] if words else ""
    extra = extras.COMMANDS.get(command, "learning")
    return _fail(str(extras.missing(error, f"`latentbandits {command}`", extra)))


def _fail(message: str, code: int = 2) -> int:
    sys.stderr.write(f"latentbandits: {message}\n")
    return code
