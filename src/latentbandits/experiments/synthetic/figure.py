"""The paper's Figure 1: three panels of reward over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from latentbandits.simulation.plots import draw_curves, name_lines
from latentbandits.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWN = ("TS", "mUCB", "mTS", "mmTS", "mmIDS")
"""The policies in the figure, few enough to be distinguished; the tables show all."""


def draw(results: Mapping[str, Results], runs: int) -> Figure:
    """Draw the good model, the bad model, and its worst runs."""
    from matplotlib.figure import Figure

    good, bad = results["sigma0=0.05"], results["sigma0=0.2"]
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    titles = (
        r"good model, $\sigma_0 = 0.05$",
        r"bad model, $\sigma_0 = 0.2$",
        r"worst 10% of runs, $\sigma_0 = 0.2$",
    )
    for axes, result, which, title in zip(
        panels, (good, bad, bad), ("mean", "mean", "worst"), titles, strict=True
    ):
        shown = [policy for name, policy in result.items() if name in DRAWN]
        draw_curves(axes, shown or list(result.values()), "mean" if which == "mean" else "worst")
        axes.set_title(title, fontsize=10)
    panels[0].set_ylabel("mean reward")
    name_lines(figure, panels)
    figure.suptitle(f"10 actions, 5 latent states: {runs} runs, one standard error", fontsize=11)
    return figure
