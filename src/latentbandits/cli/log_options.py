"""Options of commands that read a log: its columns, and how delimited text is written."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from latentbandits.options import Options

if TYPE_CHECKING:
    from latentbandits.learning.logs.tables import TextFormat


def add_columns(parser: Options) -> None:
    """Add the options --user, --action and --reward."""
    add = parser.add_argument
    add("--user", metavar="COL", help="column with the user's id (default: user or session)")
    add("--action", metavar="COL", help="column with the action's id (default: action)")
    add("--reward", metavar="COL", help="column with the reward (default: reward)")


def add_text_format(parser: Options) -> None:
    """Add the options --separator, --encoding and --columns."""
    add = parser.add_argument
    separator = "what separates the fields of text files (default: detected)"
    add("--separator", metavar="TEXT", help=separator)
    add("--encoding", metavar="NAME", help="encoding of text files (default: detected)")
    names = "names of all columns, for text files without a header line"
    add("--columns", metavar="A,B,C", help=names)


def text_format(arguments: argparse.Namespace) -> TextFormat:
    """Return the format that --separator, --encoding and --columns describe."""
    from latentbandits.learning.logs.tables import TextFormat

    separator = arguments.separator
    if separator is not None:
        separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    columns = None
    if arguments.columns is not None:
        columns = tuple(name.strip() for name in arguments.columns.split(","))
    return TextFormat(separator, arguments.encoding, columns)
