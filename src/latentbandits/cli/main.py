"""`latentbandits COMMAND`: parse, run, and report an error in one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from latentbandits import __version__, extras
from latentbandits.names import one_of
from latentbandits.options import Parser

COMMANDS: Mapping[str, str] = {
    "fit": "learn a model with its own uncertainty from a log of interactions",
    "inspect": "show a model, and the report of its fit",
    "start": "write a model with a wide prior, to serve without a log",
    "simulate": "play policies against users of a model, or of a held-out log",
    "tune": "find the best policy for a model, on users drawn from its own prior",
    "serve": "run the decision service",
    "key": "make an API key of the service; only its hash is kept",
    "export": "write the decision log of a service as a table",
    "evaluate": "estimate from a log what policies would have earned",
    "relearn": "learn again from the log of a service, and activate a better model",
    "check": "verify a store, also beside a running service",
    "backup": "copy a store, also beside a running service",
    "reproduce": "measure the paper's figures and claims again",
    "completion": "print a script that completes commands and options in a shell",
}
"""The commands, each with one line of help. The module of this name has `add_options(parser)` and
`run(arguments)`; the second paragraph of its docstring is the command's description."""

EXIT_CODES = """exit codes:
  0    done
  1    check has found problems
  2    nothing was done, or the work failed: one sentence on standard error says why
  3    done, with warnings, where fit was asked to be --strict
  130  interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (`EXIT_CODES`)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        build_parser(()).print_help(sys.stderr)
        return 2
    command = words[0]
    try:
        if command.startswith("-"):
            one_of("option", command, ("-h", "--help", "--version"))
        else:
            one_of("command", command, COMMANDS)
        parser = build_parser([command] if command in COMMANDS else ())
    except ModuleNotFoundError as error:
        return _missing(error, words)
    except ValueError as error:
        return _fail(str(error))
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
    """Return the parser, with the options of these commands: the others are not imported."""
    parser = Parser(
        prog="latentbandits",
        description="Learn offline who your users can be; find out online which one this is.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"latentbandits {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    wanted = list(commands)
    for command, line in COMMANDS.items():
        sub = subparsers.add_parser(command, help=line)
        if command in wanted:
            try:
                _fill(sub, command)
            except ModuleNotFoundError:  # an extra is missing: reported when the command is used
                if len(wanted) == 1:
                    raise
    return parser


def _fill(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the description and the options of a command, and the function that carries it out."""
    module: Any = import_module(f"latentbandits.cli.{command}")
    _, _, rest = str(module.__doc__).partition("\n\n")
    parser.description = rest or f"{COMMANDS[command][0].upper()}{COMMANDS[command][1:]}."
    parser.set_defaults(run=module.run)
    module.add_options(parser)


def _missing(error: ModuleNotFoundError, words: Sequence[str]) -> int:
    command = words[0] if words else ""
    extra = extras.COMMANDS.get(command, "learning")
    return _fail(str(extras.missing(error, f"`latentbandits {command}`", extra)))


def _fail(message: str, code: int = 2) -> int:
    sys.stderr.write(f"latentbandits: {message}\n")
    return code
