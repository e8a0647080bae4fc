"""Options of the command line that commands and experiments share, and their checks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

from latentbandits.names import nearest, one_of
from latentbandits.processors import cores


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, which names the nearest option for an unknown one."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; exit with a sentence if an option is not known."""
        words = list(args or ())
        known = long_options(self)
        for word in words[: words.index("--") if "--" in words else len(words)]:
            name = word.partition("=")[0]
            if known and word.startswith("--") and not any(one.startswith(name) for one in known):
                near = nearest(name, known)
                hint = "" if near is None else f": did you mean {near}?"
                self.error(f"unknown option {name}{hint}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit with one line; the usage, which may be twenty, is left to --help."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def long_options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the options of a parser that begin with two dashes; none if it has sub-commands."""
    if sub_commands(parser):
        return {}
    return {
        name: action
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--")
    }


def sub_commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's sub-commands by their names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def positive(text: str) -> int:
    """Parse a whole number of at least one, as a type of argparse."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def above_zero(text: str) -> float:
    """Parse a finite number above zero, as a type of argparse."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return number


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds(text: str) -> float:
    """Return the seconds of a time such as 30s, 15m, 2h, 30d or 2w; a plain number is seconds.

    >>> seconds("15m"), seconds("1.5h"), seconds("90")
    (900.0, 5400.0, 90.0)
    """
    text = text.strip()
    unit = text[-1:] if text[-1:] in _UNITS else ""
    try:
        return float(text.removesuffix(unit)) * _UNITS[unit or "s"]
    except ValueError:
        raise ValueError(f"{text!r} is not a time such as 30s, 15m, 2h or 30d") from None


def in_words(time: float) -> str:
    """Return a time in its largest unit that divides it, as `seconds` reads it.

    >>> in_words(30 * 86400.0), in_words(90.0), in_words(0.5)
    ('30d', '90s', '0.5s')
    """
    units = [unit for unit, size in _UNITS.items() if time % size == 0 and unit != "w"]
    unit = units[-1] if units and time else "s"
    return f"{time / _UNITS[unit]:g}{unit}"


def duration(text: str) -> timedelta:
    """Parse a time above zero, as a type of argparse.

    >>> duration("1h")
    datetime.timedelta(seconds=3600)
    """
    try:
        time = timedelta(seconds=seconds(text))
    except (ValueError, OverflowError):
        time = timedelta(0)
    if time <= timedelta(0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s, 15m, 2h or 30d")
    return time


def whole(text: str) -> int:
    """Parse a whole number of at least zero, as a type of argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


Options = argparse.ArgumentParser | argparse._ArgumentGroup
"""A parser, or one of its groups, to which options are added."""


def add_seed(parser: Options) -> None:
    """Add --seed."""
    parser.add_argument("--seed", type=whole, default=0, help="random seed (default 0)")


def add_json(parser: Options) -> None:
    """Add --json, for scripts: one document on standard output, everything else beside it."""
    described = "print the results as one JSON document, and everything else on standard error"
    parser.add_argument("--json", action="store_true", help=described)


def add_common(parser: Options, out: str) -> None:
    """Add --seed, --jobs and --out, which every command that computes takes."""
    add_seed(parser)
    parser.add_argument(
        "--jobs", type=positive, default=cores(), help="processes (default: one per core)"
    )
    parser.add_argument("--out", default=out, metavar="DIR", help=f"results (default {out})")


@dataclass(frozen=True)
class Option:
    """An option of a command; `--help` shows its default.

    Attributes:
        name: without the dashes.
        help: a few words.
        default: the value if the option is not given; False: the option is a switch.
        type: parses a value.
        several: whether one or more values may be given.
        choices: the accepted values; None: every value that `type` accepts.
        metavar: the value's name in `--help`.
        recorded: whether results.json has the value among the settings.
    """

    name: str
    help: str
    default: Any = None
    type: Callable[[str], Any] = str
    several: bool = False
    choices: Sequence[str] | None = None
    metavar: str | None = None
    recorded: bool = True

    @property
    def key(self) -> str:
        """The name of the value among parsed arguments and settings."""
        return self.name.replace("-", "_")

    def add(self, parser: Options) -> None:
        """Add the option to a parser."""
        default = self.default
        if default is False:
            parser.add_argument(f"--{self.name}", action="store_true", help=self.help)
            return
        shown = " ".join(map(str, default)) if isinstance(default, list) else default
        parser.add_argument(
            f"--{self.name}",
            help=self.help if default in (None, []) else f"{self.help} (default {shown})",
            default=default,
            type=self.type,
            nargs="+" if self.several else None,
            choices=self.choices,
            metavar=self.metavar,
        )


def simulation_options(runs: int, horizon: int) -> tuple[Option, ...]:
    """Return --runs, --horizon, --policies and the windows of the first and last rounds."""
    window = "rounds of the {} window, at most half the horizon"
    return (
        Option("runs", "runs", runs, positive),
        Option("horizon", "rounds per run", horizon, positive),
        Option("policies", "only these; by default all of them", several=True, metavar="POLICY"),
        Option("first-rounds", window.format("first"), FIRST_ROUNDS, positive, metavar="N"),
        Option("last-rounds", window.format("last"), LAST_ROUNDS, positive, metavar="N"),
    )


FIRST_ROUNDS = 50
LAST_ROUNDS = 100
"""The windows of the paper's experiments, at the start and at the end of a run."""


def choose(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """Return the known names that `names` asks for, in their order; all if none are given.

    >>> choose("policy", ["mTS"], ["mTS", "mmTS"])
    ['mTS']
    """
    available = list(known)
    for name in names or ():
        one_of(kind, name, available)
    return [name for name in available if not names or name in names]
