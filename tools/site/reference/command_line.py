"""The page of the command line, from its parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from latentbandits.cli.main import EXIT_CODES, build_parser
from latentbandits.options import sub_commands
from tools.site.reference.docstrings import escaped

Command = tuple[str, argparse.ArgumentParser]


def commands(parser: argparse.ArgumentParser | None = None) -> Iterator[Command]:
    """Yield every command that takes options, with its parser: `fit`, `reproduce theory`, ..."""
    parser = build_parser() if parser is None else parser
    children = sub_commands(parser)
    for child in children.values():
        if child.add_help:  # a name without help only says where it has moved to
            yield from commands(child)
    if not children:
        yield parser.prog.removeprefix("latentbandits "), parser


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments and options of a command, without `--help`."""
    return [
        action
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS
    ]


def option_name(action: argparse.Action) -> str:
    """Return how people write an option: `--seed SEED`, or `LOG`."""
    shown = action.metavar or (action.dest if not action.option_strings else action.dest.upper())
    if isinstance(shown, tuple):
        shown = " ".join(shown)
    if action.choices is not None:
        shown = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return str(shown)
    name = ", ".join(action.option_strings)
    return name if action.nargs == 0 else f"{name} {shown}"


def page() -> str:
    """Return the reference of the command line."""
    result = sorted(commands(), key=lambda one: one[0].startswith("reproduce"))
    parts = [
        "# Command line",
        "`latentbandits COMMAND --help` prints the same. `latentbandits completion bash` prints a "
        "script that completes commands and options in a shell. A TIME is written 30s, 15m, 2h or "
        "30d; a plain number is in seconds. With `--json`, a command prints its results as one "
        "document on standard output, and everything else on standard error.",
        f"```text\n{EXIT_CODES}```",
        "\n".join(f"- [`latentbandits {name}`](#{_anchor(name)})" for name, _ in result),
    ]
    for name, parser in result:
        parts += [f"## `latentbandits {name}` {{ #{_anchor(name)} }}", _description(parser)]
        for group in parser._action_groups:
            rows = [
                f"| `{_cell(option_name(action))}` | {_help(parser, action)} |"
                for action in options(parser)
                if action in group._group_actions
            ]
            if rows:
                parts.append("\n".join([f"| {group.title} | |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _description(parser: argparse.ArgumentParser) -> str:
    text = (parser.description or "").strip()
    _, _, sentence = text.partition("`: ") if text.startswith("`") else ("", "", text)
    sentence = sentence or text
    return escaped(sentence[:1].upper() + sentence[1:])


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return escaped(" ".join(text.split()))
