"""The paper's Figure 1: three panels of reward over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from latentbandits.simulation.plots import draw_curves
from latentbandits.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_DRAWN = ("mmUCB", "mIDS", "mmGreedy", "UCB1(scale=0.5)")
"""In the tables only, to reduce clutter, as the paper does with mmUCB."""


def draw(results: Mapping[str, Results], runs: int) -> Figure:
    from matplotlib.figure import Figure

    good, bad = results["sigma0=0.05"], results["sigma0=0.2"]
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    titles = (
        r"good model, $\sigma_0 = 0.05$",
        r"bad model, $\sigma_0 = 0.2$",
        r"worst 10% of runs, $\sigma_0 = 0.2$",
    )
    for axes, result, which, title in zip(
        panels, (good, bad, bad), ("mean", "mean", "worst"), titles, strict=True
    ):
        shown = [policy for name, policy in result.items() if name not in NOT_DRAWN]
        draw_curves(axes, shown or list(result.values()), "mean" if which == "mean" else "worst")
        axes.set_title(title, fontsize=11)
    panels[0].set_ylabel("mean reward")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(
        f"Synthetic problem, 10 actions and 5 latent states: {runs} runs, one standard error",
        fontsize=11,
    )
    return figure
