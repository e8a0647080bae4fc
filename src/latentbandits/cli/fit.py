"""`latentbandits fit LOG`: learn a model with its own uncertainty from a log of interactions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

from latentbandits.cli import log_options
from latentbandits.options import above_zero, positive, seed

WARNED = 3
"""Exit code of `--strict` where there are warnings."""

DUPLICATES = ("keep", "mean", "last", "drop")


class _Choices:
    """The values of an option; `read` imports what lists them when they are first read."""

    def __init__(self, read: Callable[[], Iterable[str]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())


def _kinds() -> Iterable[str]:
    from latentbandits.learning import fit_options

    return get_args(fit_options.Kind)


def _families() -> Iterable[str]:
    from latentbandits.models.registry import reward_families

    return ("auto", *reward_families())


_SAME_NAMES = (
    "user", "action", "reward", "unrewarded", "kind", "rewards", "transform", "states", "rank",
    "reg", "method", "noise", "bootstrap", "duplicates", "user_features", "features",
    "item_features", "seed", "engine", "scratch", "partitions", "master",
    "quick",
)  # fmt: skip
"""Arguments of the command line that are options of `fit` with the same name."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits fit`."""
    add = parser.add_argument
    kinds = "CSV, TSV, JSON lines, Parquet or Arrow, also .gz or .zst: files, a folder, or a glob"
    add("log", metavar="LOG", nargs="+", help=kinds)
    log_options.add_columns(parser)
    missing = "the reward of decisions that got none (default: an export's are dropped)"
    add("--unrewarded", type=float, metavar="VALUE", help=missing)
    add("--time", metavar="COL", help="orders a user's rows (default: as they are)")
    log_options.add_text_format(parser)
    add("--out", required=True, metavar="MODEL", help="the folder to write, replaced as a whole")
    kinds = (
        "%(choices)s; linear: complete and cluster; arms: a mixture (default: by held-out users)"
    )
    add("--kind", choices=_Choices(_kinds), default="auto", metavar="KIND", help=kinds)
    families = "family of the rewards of arms: %(choices)s (default auto: by held-out evidence)"
    add("--rewards", choices=_Choices(_families), default="auto", metavar="FAMILY", help=families)
    tails = "of heavy-tailed rewards, stored in the model; decisions stay in original units"
    add("--transform", choices=("log1p", "sqrt"), help=tails)
    add("--states", type=_auto(positive), default="auto", help="how many, or auto (default)")
    add("--rank", type=_auto(positive), default="auto", help="of a linear model, or auto (default)")
    add("--reg", type=_auto(above_zero), default="auto", help="of its completion (default auto)")
    add("--method", choices=("em", "spectral"), default="em", help="for arms (default em)")
    add("--noise", type=above_zero, help="sd of a reward (default: from residuals)")
    fits = "fits to resampled users, for how wrong the model may be (default 20; 0: none)"
    add("--bootstrap", type=_count, default=20, metavar="B", help=fits)
    repeats = "several rewards of a user for an action: keep each (default), take their mean, the "
    repeats += "last, or keep each but drop rows that repeat another exactly"
    add("--duplicates", choices=("auto", *DUPLICATES), default="auto", help=repeats)
    add("--name-column", metavar="COL", help="the column with the actions' names")
    add("--items", metavar="TABLE", help="the table with that column (default: the log)")
    known = "columns with what is known about users: a gate P(state | attributes) is learned"
    rows = "columns with features of each row (a*b: an interaction): a mixture of regressions"
    add("--features", nargs="+", default=[], metavar="COL", help=rows)
    table = "table with a row of attributes for each action: new actions are predicted from theirs"
    add("--item-features", metavar="TABLE", help=table)
    add("--user-features", nargs="+", default=[], metavar="COL", help=known)
    where = "sum the log in memory, in partitions on disk, or on Spark (default: by its size)"
    add("--engine", choices=("auto", "memory", "out_of_core", "spark"), default="auto", help=where)
    add("--scratch", metavar="FOLDER", help="for partitions of a large log (default: the system's)")
    add("--partitions", metavar="FOLDER", help="keep the partitions there for the next fit")
    add("--master", metavar="URL", help="of the engine spark (default: local[*])")
    early = "answer in seconds: arms up to 50 actions, no bootstrap, one policy, choices on users "
    early += "with 100,000 rewards"
    add("--quick", action="store_true", help=early)
    add(
        "--verbose", action="store_true", help="print all tables of the report, not only the states"
    )
    add("--strict", action="store_true", help="exit with code 3 if there are warnings")
    add("--seed", type=seed, default=0, help="of all randomness (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits fit`; returns the exit code."""
    from latentbandits.cli.console import Progress, print_warnings, show_fit
    from latentbandits.learning.backends.opening import in_units, stopped_by_exception
    from latentbandits.learning.fit_options import FitOptions
    from latentbandits.learning.fitting import fit
    from latentbandits.learning.save import PAGE_FILE, write_fit
    from latentbandits.models.artefacts.files import replacing
    from latentbandits.report.terminal import open_console, say

    options = FitOptions(
        order=arguments.time,
        text_format=log_options.text_format(arguments),
        names=_names(arguments),
        **{name: getattr(arguments, name) for name in _SAME_NAMES},
    )
    # `replacing` fails if the folder cannot be written.
    with stopped_by_exception(), replacing(arguments.out) as folder:
        with Progress("fit") as progress:
            result = fit(arguments.log, options, progress=progress)
        write_fit(result, folder)
    console = open_console()
    show_fit(console, result.report, verbose=arguments.verbose)
    disk = result.report["engine"]["disk"]
    if disk is not None:
        say(console, f"partitions of the log took {in_units(disk)} of disk")
    seconds = result.report["seconds"]
    say(console, f"{seconds:.0f} s; model in {arguments.out}, page in {arguments.out}/{PAGE_FILE}")
    print_warnings(result.report["warnings"])
    return WARNED if arguments.strict and result.report["warnings"] else 0


def _names(arguments: argparse.Namespace) -> dict[str, str] | None:
    from latentbandits.learning.logs.rows import read_names

    if arguments.name_column is None:
        if arguments.items is not None:
            raise ValueError("--items needs --name-column: which of its columns holds the names?")
        return None
    action = arguments.action or "action"
    if arguments.items is None:
        written = log_options.text_format(arguments)
        return read_names(arguments.log, action, arguments.name_column, written)
    return read_names(arguments.items, action, arguments.name_column)


def _auto(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type of argparse: the word auto, or a value that `kind` takes."""

    def parse(text: str) -> Any:
        return text if text == "auto" else kind(text)

    return parse


def _count(text: str) -> int:
    return 0 if text == "0" else positive(text)
