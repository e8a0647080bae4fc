"""`latentbandits fit LOG`: learn a model with its own uncertainty from a log of interactions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

from latentbandits.cli import log_options
from latentbandits.options import Options, above_zero, add_json, add_seed, duration, positive, whole

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


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits fit`."""
    parser.usage = "%(prog)s LOG [LOG ...] --out MODEL [options]"
    kinds = "CSV, TSV, JSON lines, Parquet or Arrow, also .gz or .zst: files, a folder, or a glob"
    parser.add_argument("log", metavar="LOG", nargs="+", help=kinds)
    _add_log(parser.add_argument_group("the log"))
    _add_model(parser.add_argument_group("the model"))
    _add_attributes(parser.add_argument_group("names and attributes"))
    _add_engine(parser.add_argument_group("large logs"))
    group = parser.add_argument_group("output")
    add = group.add_argument
    add("--out", required=True, metavar="MODEL", help="the folder to write, replaced as a whole")
    early = "answer in seconds: arms up to 50 actions, no bootstrap, two policies, choices on "
    early += "users with 100,000 rewards"
    add("--quick", action="store_true", help=early)
    add(
        "--verbose", action="store_true", help="print all tables of the report, not only the states"
    )
    add_json(group)
    add("--strict", action="store_true", help="exit with code 3 if there are warnings")
    add_seed(group)


def _add_log(group: Options) -> None:
    add = group.add_argument
    log_options.add_columns(group)
    add("--time", metavar="COL", help="column that orders a user's rows (default: as they are)")
    missing = "reward of decisions that got none (default: an export's are dropped)"
    add("--unrewarded", type=float, metavar="VALUE", help=missing)
    repeats = "several rewards of a user for an action: keep each (default), use their mean, the "
    repeats += "last, or keep each but drop rows that repeat another exactly"
    add("--duplicates", choices=("auto", *DUPLICATES), default="auto", help=repeats)
    together = "column with the list in which actions were shown (default: list_id of an export)"
    add("--list", metavar="COL", help=together)
    add("--position", metavar="COL", help="column with the position in the list, 1 at the top")
    looks = "how users look at a list: %(choices)s (default auto: by held-out evidence)"
    models = ("auto", "each", "cascade", "positions")
    add("--click-model", choices=models, default="auto", metavar="MODEL", help=looks)
    often = "how often each position is looked at, such as 1,0.6,0.4 (default: learned)"
    add("--examination", type=_numbers, metavar="E", help=often)
    log_options.add_text_format(group)


def _add_model(group: Options) -> None:
    add = group.add_argument
    kinds = (
        "%(choices)s; linear: complete and cluster; arms: a mixture (default: by held-out users)"
    )
    add("--kind", choices=_Choices(_kinds), default="auto", metavar="KIND", help=kinds)
    families = "family of the rewards of arms: %(choices)s (default auto: by held-out evidence)"
    add("--rewards", choices=_Choices(_families), default="auto", metavar="FAMILY", help=families)
    tails = "transform heavy-tailed rewards; it is stored in the model, and decisions stay in "
    tails += "original units"
    add("--transform", choices=("log1p", "sqrt"), help=tails)
    states, rank = (
        "number of states, or auto (default)",
        "rank of a linear model, or auto (default)",
    )
    add("--states", type=_auto(positive), default="auto", metavar="N", help=states)
    add("--rank", type=_auto(positive), default="auto", metavar="N", help=rank)
    reg = "regularisation of a linear model, or auto (default)"
    add("--reg", type=_auto(above_zero), default="auto", metavar="X", help=reg)
    moves = "whether a user's state moves between rows: %(choices)s (default auto: by held-out "
    moves += "evidence of rows in their order)"
    add("--dynamics", choices=("auto", "none", "markov"), default="auto", metavar="D", help=moves)
    pause = "time between two rows of a user above which a state that moves has a matrix of its own"
    add("--session-gap", type=_seconds, metavar="TIME", help=pause + " (30m; needs --time)")
    methods = "how arms are learned (default em)"
    add("--method", choices=("em", "spectral"), default="em", help=methods)
    noise = "standard deviation of a reward (default: from residuals)"
    add("--noise", type=above_zero, metavar="X", help=noise)
    fits = "fits to resampled users, for how wrong the model may be (default 20; 0: none)"
    add("--bootstrap", type=whole, default=20, metavar="B", help=fits)


def _add_attributes(group: Options) -> None:
    add = group.add_argument
    add("--name-column", metavar="COL", help="column with the actions' names")
    add("--items", metavar="TABLE", help="table with that column (default: the log)")
    rows = "columns with features of each row (a*b: an interaction): a mixture of regressions"
    add("--features", nargs="+", default=[], metavar="COL", help=rows)
    table = "table with a row of attributes for each action: new actions are predicted from theirs"
    add("--item-features", metavar="TABLE", help=table)
    known = "columns with what is known about users: a gate P(state | attributes) is learned"
    add("--user-features", nargs="+", default=[], metavar="COL", help=known)


def _add_engine(group: Options) -> None:
    add = group.add_argument
    where = "sum the log in memory, in partitions on disk, or on Spark (default: by its size)"
    add("--engine", choices=("auto", "memory", "out_of_core", "spark"), default="auto", help=where)
    scratch = "folder for partitions of a large log (default: the system's)"
    add("--scratch", metavar="FOLDER", help=scratch)
    add("--partitions", metavar="FOLDER", help="keep the partitions there for the next fit")
    add("--master", metavar="URL", help="master of the engine spark (default: local[*])")


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits fit`; returns the exit code."""
    from latentbandits.cli.console import Progress, print_warnings, show_fit
    from latentbandits.learning.backends.opening import in_units, stopped_by_exception
    from latentbandits.learning.fit_options import FitOptions
    from latentbandits.learning.fitting import fit
    from latentbandits.learning.save import PAGE_FILE, results, write_fit
    from latentbandits.models.artefacts import replacing
    from latentbandits.report.terminal import open_console, print_json, say

    given = vars(arguments)
    options = FitOptions(
        order=arguments.time,
        text_format=log_options.text_format(arguments),
        names=_names(arguments),
        **{name: given[name] for name in FitOptions.__dataclass_fields__ if name in given},
    )
    # `replacing` fails if the folder cannot be written.
    with stopped_by_exception(), replacing(arguments.out) as folder:
        with Progress("fit") as progress:
            result = fit(arguments.log, options, progress=progress)
        write_fit(result, folder)
    console = open_console(stderr=arguments.json)
    show_fit(console, result.report, verbose=arguments.verbose)
    disk = result.report["engine"]["disk"]
    if disk is not None:
        say(console, f"partitions of the log took {in_units(disk)} of disk")
    seconds = result.report["seconds"]
    say(console, f"{seconds:.0f} s; model in {arguments.out}, page in {arguments.out}/{PAGE_FILE}")
    print_warnings(result.report["warnings"])
    if arguments.json:
        print_json(results(result))
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


def _seconds(text: str) -> float:
    return duration(text).total_seconds()


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]
