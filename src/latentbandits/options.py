"""Options of the command line that commands and experiments share, and their checks."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
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


def seed(text: str) -> int:
    """Parse a whole number of at least zero, as a type of argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def add_common(parser: argparse.ArgumentParser, out: str) -> None:
    """Add --seed, --jobs and --out, which every command that computes takes."""
    parser.add_argument("--seed", type=seed, default=0, help="of all randomness (default 0)")
    parser.add_argument(
        "--jobs", type=positive, default=cores(), help="processes (default: one per core)"
    )
    parser.add_argument("--out", default=out, metavar="DIR", help=f"results (default {out})")


def add_simulation_options(parser: argparse.ArgumentParser, runs: int, horizon: int) -> None:
    """Add --runs, --horizon, --policies and the windows of the first and last rounds."""
    add = parser.add_argument
    add("--runs", type=positive, default=runs, help=f"runs (default {runs})")
    add("--horizon", type=positive, default=horizon, help=f"rounds per run (default {horizon})")
    add("--policies", nargs="+", metavar="POLICY", help="only these (default: all of them)")
    for name, default in (("first", FIRST_ROUNDS), ("last", LAST_ROUNDS)):
        text = f"rounds of the {name} window, at most half the horizon (default {default})"
        add(f"--{name}-rounds", type=positive, default=default, metavar="N", help=text)


FIRST_ROUNDS = 50
LAST_ROUNDS = 100
"""The windows of the paper's experiments, at the start and at the end of a run."""


def windows(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the windows of a command's arguments, as keyword arguments of `simulate`."""
    return {"first_rounds": arguments.first_rounds, "last_rounds": arguments.last_rounds}


def choose(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """Return the known names that `names` asks for, in their order; all if none are given.

    >>> choose("policy", ["mTS"], ["mTS", "mmTS"])
    ['mTS']
    """
    available = list(known)
    for name in names or ():
        one_of(kind, name, available)
    return [name for name in available if not names or name in names]
