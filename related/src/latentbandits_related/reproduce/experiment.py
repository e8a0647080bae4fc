"""Play related systems on the same problems, in five tables."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.experiments.experiment import Experiment, Work, metric_table, policy_rows
from latentbandits.options import Option, choose
from latentbandits.report import drawing
from latentbandits.report.report import Claim, Estimate, Report, Table
from latentbandits.simulation import Results, simulate
from latentbandits.simulation.simulate import PolicyResult
from latentbandits_related.reproduce import (
    clustering,
    factorisation,
    known_model,
    offline,
    rank_one,
)
from latentbandits_related.reproduce.claims import CLAIMS, agreements, played
from latentbandits_related.reproduce.table import Column, KeptRows, RelatedTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TABLES: Mapping[str, RelatedTable] = {
    table.name: table
    for table in (
        known_model.TABLE,
        clustering.TABLE,
        rank_one.TABLE,
        factorisation.TABLE,
        offline.TABLE,
    )
}


class RelatedExperiment(Experiment):
    """The systems that the paper discusses as related work, and later ones."""

    name = "related"
    help = "related systems side by side: known models, clusters, rank 1, factors, subspaces"
    options = (
        Option("tables", f"of {', '.join(TABLES)}; by default all", several=True, metavar="TABLE"),
        Option("policies", "only these rows; by default all", several=True, metavar="POLICY"),
        Option("quick", "small problems: seconds instead of an hour", False),
        Option("keep", "keep every finished row there, and take rows that are there already",
               type=Path, metavar="FOLDER", recorded=False),
    )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        self._columns(arguments)

    def _columns(self, arguments: argparse.Namespace) -> dict[str, list[Column]]:
        """Return the chosen tables with the chosen rows; raise ValueError for unknown names."""
        tables = choose("table", arguments.tables, TABLES)
        columns = {name: TABLES[name].columns(arguments.quick) for name in tables}
        known = dict.fromkeys(row for table in columns.values() for c in table for row in c.rows)
        chosen = choose("policy", arguments.policies, known)
        return {
            name: [kept for column in table if (kept := column.only(chosen)).rows]
            for name, table in columns.items()
        }

    def measure(self, work: Work) -> Report:
        chosen = self._columns(work.options)
        tables: list[Table] = []
        claims: list[Claim] = []
        rows: list[dict[str, Any]] = []
        for name, columns in chosen.items():
            if not columns:
                continue
            table = TABLES[name]
            results = _play(table, columns, work)
            tables += _tables(table, columns, results)
            if not work.options.quick:
                claims += [c.check(results) for c in CLAIMS[name] if played(c, results)]
                claims += agreements(name, columns, results)
            rows += [row | {"table": name} for row in policy_rows(results)]
        return Report(
            settings={"tables": list(chosen)}, policies=rows, claims=claims, tables=tables
        )

    def draw(self, results: Mapping[str, Any]) -> dict[str, Figure]:
        """Draw a figure of each table whose rows are in the results: regrets on every problem."""
        figures = {}
        for name, table in TABLES.items():
            rows = [row for row in results["policies"] if row["table"] == name]
            if rows:
                bands = _bands([_shown(row) for row in rows])
                label = "regret: reward lost over all rounds"
                figures[f"related-{name}"] = _draw_dots(table.title, label, bands)
        return figures


def play_row(
    table: str, column: str, row: str, quick: bool, seed: int, keep: Path | None = None
) -> PolicyResult:
    """Play one policy on one problem; all rows of a column have the same users and noise."""
    problem = next(c for c in TABLES[table].columns(quick) if c.name == column)
    kept, key = KeptRows(keep), (table, column, row)
    numbers = problem.runs_of(row), problem.horizon, seed
    result = kept.load(key, numbers)
    if result is None:
        chosen = problem.rows[row]
        result = simulate(
            {row: chosen.policy},
            chosen.environment,
            n_runs=problem.runs_of(row),
            horizon=problem.horizon,
            seed=seed,
        )[row]
        kept.save(key, numbers, result)
    return result


def _play(table: RelatedTable, columns: list[Column], work: Work) -> dict[str, Results]:
    fixed = work.options.quick, work.options.seed, work.options.keep
    jobs = {
        column.name: [(table.name, column.name, row, *fixed) for row in column.rows]
        for column in columns
    }
    played = work.map_groups(f"related, table {table.name}", play_row, jobs)
    return {
        column.name: Results(dict(zip(column.rows, played[column.name], strict=True)))
        for column in columns
    }


def _tables(
    table: RelatedTable, columns: list[Column], results: Mapping[str, Results]
) -> list[Table]:
    """Return regret by policy and problem; with quarters, one table per problem."""
    if not table.quarters:
        by_head = {f"{one.name} ({one.runs} runs)": results[one.name] for one in columns}
        return [metric_table(f"({table.name}) {table.title}: regret", by_head, "regret")]
    tables = []
    for column in columns:
        body = []
        for name in column.rows:
            result = results[column.name][name]
            curve = result.regret_curve
            ends = [curve[len(curve) * quarter // 4 - 1] for quarter in (1, 2, 3)]
            body.append((name, *(f"{end:.0f}" for end in ends), str(result.regret)))
        title = f"({table.name}) {table.title}: {column.name}, {column.runs} runs, regret up to"
        tables.append(Table(title, ("policy", "T/4", "T/2", "3T/4", f"T={column.horizon}"), body))
    return tables


_WORDS = {
    "own scale, sigma0=": "own scale, off by ",
    "sigma0=0.": "off by 0.",
    "sigma0=0": "exact model",
    "c=0.5": "mixed users",
    "c=0.1": "users nearly in clusters",
    "N=2000": "2,000 users offline",
    "N=200": "200 users offline",
    "n=60000": "60,000 rounds",
    "n=500000": "500,000 rounds",
    "1000 users": "1,000 users",
    ", x .3": ", small bonus",
    ", theory": ", full bonus",
    "EB prior": "learned prior",
    "mean + 1 sd": "mean + 1 deviation",
    ", n - t": ", for the rest",
    "alpha2 ": "threshold ",
    "a_theta ": "threshold ",
    "alpha 1": "narrow set",
    "k=10": "10 clusters",
    "k=20": "20 clusters",
    "item factors and moments of users known": "items and moments known",
    "item factors known": "items known",
    " .": " 0.",
    "(.": "(0.",
}
"""Words of a figure for the short names of rows and problems in tables."""


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose policy and problem are named in words."""
    names = {key: str(row[key]) for key in ("policy", "setting")}
    for short, words in _WORDS.items():
        names = {key: name.replace(short, words) for key, name in names.items()}
    return {**row, **names}


_Panels = dict[str, dict[str, Estimate]]


def _bands(rows: list[Mapping[str, Any]]) -> list[_Panels]:
    """Group problems with the same policies into one band of panels; bands are stacked."""
    bands: list[_Panels] = []
    for setting, by_policy in drawing.estimates(rows, "regret").items():
        alike = bands and set(next(iter(bands[-1].values()))) == set(by_policy)
        if alike:
            bands[-1][setting] = by_policy
        else:
            bands.append({setting: by_policy})
    return bands


def _draw_dots(
    title: str, label: str, bands: Sequence[Mapping[str, Mapping[str, Estimate]]]
) -> Figure:
    """Draw a dot with its error for each policy and problem, in panels that are stacked.

    Args:
        title: of the figure.
        label: of the horizontal axes.
        bands: each is a panel and has problems by name, which share their policies; policies are
            sorted, the smallest first, and each problem has a colour.
    """
    ranked = [_ranked(problems) for problems in bands]
    heights = [0.22 * len(order) + 0.75 for order in ranked]
    figure = drawing.new_figure(sum(heights) + 0.5, title, drawing.NARROW)
    grid = figure.add_gridspec(len(bands), 1, height_ratios=heights)
    for row, (problems, order) in enumerate(zip(bands, ranked, strict=True)):
        axes = figure.add_subplot(grid[row, 0])
        for column, (name, by_policy) in enumerate(problems.items()):
            colour = (drawing.BLUE, drawing.ORANGE, drawing.GREEN)[column]
            places = [place for place, policy in enumerate(order) if policy in by_policy]
            shown = [by_policy[order[place]] for place in places]
            axes.errorbar([one.mean for one in shown], places, xerr=[one.stderr for one in shown],
                          fmt="o", color=colour, ms=5, lw=1.6)  # fmt: skip
            axes.annotate(name, ((column + 0.5) / len(problems), 1), xycoords="axes fraction",
                          xytext=(0, 4), textcoords="offset points", ha="center", color=colour,
                          fontsize=drawing.SMALL, weight="bold")  # fmt: skip
        drawing.plain(axes, x=label)
        axes.set_yticks(range(len(order)), order)
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.set_xlim(left=0)
    return figure


def _ranked(panels: Mapping[str, Mapping[str, Estimate]]) -> list[str]:
    """Return the policies of some panels by their values relative to each panel's median."""
    scores: dict[str, list[float]] = {}
    for by_policy in panels.values():
        middle = float(np.median([one.mean for one in by_policy.values()])) or 1.0
        for policy, one in by_policy.items():
            scores.setdefault(policy, []).append(one.mean / middle)
    return sorted(scores, key=lambda policy: float(np.mean(scores[policy])))
