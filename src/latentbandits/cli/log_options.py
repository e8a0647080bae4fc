"""Options of commands that read a log: its columns, and how delimited text is written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentbandits.learning.logs.formats import TextFormat


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the options --user, --action and --reward."""
    defaults = {"user": "user or session", "action": "action", "reward": "reward"}
    for name, default in defaults.items():
        described = f"the log's column of {name}s (default: {default})"
        parser.add_argument(f"--{name}", metavar="COL", help=described)


def add_text_format(parser: argparse.ArgumentParser) -> None:
    """Add the options --separator, --encoding and --columns."""
    add = parser.add_argument
    add("--separator", metavar="TEXT", help="between the fields of text files (default: detected)")
    add("--encoding", metavar="NAME", help="of text files (default: detected)")
    names = "names of all columns, for text files without a header line"
    add("--columns", metavar="A,B,C", help=names)


def text_format(arguments: argparse.Namespace) -> TextFormat:
    """Return the format that --separator, --encoding and --columns describe."""
    from latentbandits.learning.logs.formats import TextFormat

    separator = arguments.separator
    if separator is not None:
        separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    columns = None
    if arguments.columns is not None:
        columns = tuple(name.strip() for name in arguments.columns.split(","))
    return TextFormat(separator, arguments.encoding, columns)
