"""The paper's Figure 2: mean rating over time, and that of the bottom 10% of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentbandits.simulation.plots import draw_curves
from latentbandits.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_DRAWN = ("mmUCB", "mIDS")
"""In the tables only, to reduce clutter, as the paper does with mmUCB."""


def draw(results: Results, title: str, label: str = "mean rating") -> Figure:
    from matplotlib.figure import Figure

    shown = [policy for name, policy in results.items() if name not in NOT_DRAWN]
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_curves(left, shown or list(results.values()), "mean")
    draw_curves(right, shown or list(results.values()), "worst")
    left.set_title("all users", fontsize=11)
    right.set_title("bottom 10% of users", fontsize=11)
    left.set_ylabel(label)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure
