"""Options of the command line that commands and experiments share, and their checks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from latentbandits.names import one_of
from latentbandits.processors import cores


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


def whole(text: str) -> int:
    """Parse a whole number of at least zero, as a type of argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


seed = whole


def add_common(parser: argparse.ArgumentParser, out: str) -> None:
    """Add --seed, --jobs and --out, which every command that computes takes."""
    parser.add_argument("--seed", type=whole, default=0, help="of all randomness (default 0)")
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

    def add(self, parser: argparse.ArgumentParser) -> None:
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


def windows(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the windows of a command's arguments, as keyword arguments of `simulate`."""
    return {name: getattr(arguments, name) for name in ("first_rounds", "last_rounds")}


def choose(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """Return the known names that `names` asks for, in their order; all if none are given.

    >>> choose("policy", ["mTS"], ["mTS", "mmTS"])
    ['mTS']
    """
    available = list(known)
    for name in names or ():
        one_of(kind, name, available)
    return [name for name in available if not names or name in names]
