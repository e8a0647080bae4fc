"""One figure per table: the regret of every policy on every problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.experiments.related.experiment import TABLES
from latentbandits.report.drawing import draw_dots, estimates
from latentbandits.report.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Panels = dict[str, dict[str, Estimate]]


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw the tables whose rows are in the results."""
    figures = {}
    for name, table in TABLES.items():
        rows = [row for row in results["policies"] if row["table"] == name]
        if rows:
            title = f"({name}) {table.title}"
            figures[f"related-{name}"] = draw_dots(title, "regret", _bands(rows))
    return figures


def _bands(rows: list[Mapping[str, Any]]) -> list[_Panels]:
    """Group problems with the same policies into one band of panels; bands are stacked."""
    bands: list[_Panels] = []
    for setting, by_policy in estimates(rows, "regret").items():
        alike = bands and set(next(iter(bands[-1].values()))) == set(by_policy)
        if alike:
            bands[-1][setting] = by_policy
        else:
            bands.append({setting: by_policy})
    return bands
