"""Options that experiments and other commands share, and the checks on what they are given."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from latentbandits.names import one_of


def positive(text: str) -> int:
    """An argparse type: a whole number of at least one."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def above_zero(text: str) -> float:
    """An argparse type: a finite number above zero."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return number


def choose(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """`names`, each one of `known`; all where none are given; the nearest is suggested.

    >>> choose("policy", ["mTS"], ["mTS", "mmTS"])
    ['mTS']
    """
    available = list(known)
    if not names:
        return available
    chosen = [one_of(kind, name, available) for name in names]
    return [name for name in available if name in chosen]


def add_simulation_options(parser: argparse.ArgumentParser, runs: int, horizon: int) -> None:
    """--runs, --horizon, --policies."""
    parser.add_argument("--runs", type=positive, default=runs, help=f"runs (default {runs})")
    parser.add_argument(
        "--horizon", type=positive, default=horizon, help=f"rounds per run (default {horizon})"
    )
    parser.add_argument(
        "--policies", nargs="+", metavar="POLICY", help="only these (default: all of them)"
    )
