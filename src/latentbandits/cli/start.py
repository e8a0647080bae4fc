"""`latentbandits start --actions TABLE`: write a model with a wide prior, to serve without a log.

It has one state. `serve` plays Thompson sampling on it, and `relearn` pools the rewards of all
users into its prior until a learned model is better.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentbandits.learning.logs.tables import Table


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `latentbandits start`."""
    add = parser.add_argument
    add("--actions", required=True, metavar="TABLE", help="a table with one row for each action")
    add("--action", default="action", metavar="COL", help="the column of ids (default action)")
    add("--name-column", metavar="COL", help="the column with the actions' names (default: ids)")
    rewards = "clicks, stars, counts, or a reward family as in `fit --rewards`"
    add("--rewards", required=True, metavar="FAMILY", help=rewards)
    add("--out", required=True, metavar="MODEL", help="the folder to write, replaced as a whole")
    values = "rewards that occur (default 0 1; of stars 1 2 3 4 5)"
    add("--values", type=float, nargs="+", metavar="R", help=values)
    mean = "the expected reward, such as a click rate (default: the mean of the values)"
    add("--mean", type=float, metavar="R", help=mean)
    spread = "deviation of an action's mean reward from it (default: a prior worth two rewards)"
    add("--spread", type=float, metavar="R", help=spread)


def run(arguments: argparse.Namespace) -> int:
    """Carry out `latentbandits start`; returns the exit code."""
    from latentbandits.learning.logs.tables import as_text, read_table
    from latentbandits.models.arms.start import save_start
    from latentbandits.models.artefacts import Catalogue

    name = arguments.name_column or arguments.action
    columns = list(dict.fromkeys([arguments.action, name]))
    table = read_table(arguments.actions, columns, text=columns)
    for column in columns:
        if table.frame[column].dtype.is_nested():
            raise ValueError(f"{arguments.actions}: the column {column} holds lists, not text")
    ids = as_text(table.frame[arguments.action]).to_list()
    names = as_text(table.frame[name]).to_list()
    _check_ids(table, arguments.action, ids)
    if len(ids) == 1:
        raise ValueError(
            f"{arguments.actions} has one action only ({ids[0]!r}): there is nothing to choose; "
            f"is {arguments.action!r} the right column?"
        )
    catalogue = Catalogue(ids, [i if n is None else n for i, n in zip(ids, names, strict=True)])
    settings = {key: getattr(arguments, key) for key in ("rewards", "values", "mean", "spread")}
    model = save_start(arguments.out, catalogue, **settings)
    mean, variance = model.posterior_rewards(model.parameters(1), None)
    sys.stdout.write(
        f"{len(catalogue)} actions, {arguments.rewards}: expected reward {mean[0, 0, 0]:.3g}, "
        f"spread {variance[0, 0, 0] ** 0.5:.3g}; model in {arguments.out}\n"
    )
    return 0


def _check_ids(table: Table, column: str, ids: list[str | None]) -> None:
    """Refuse an action without an id, or with the id of another one; name the row."""
    seen: set[str] = set()
    for row, one in enumerate(ids):
        if not one:
            raise ValueError(f"{table.where(row)} has no {column}")
        if one in seen:
            raise ValueError(f"{table.where(row)} names the action {one!r} again")
        seen.add(one)
