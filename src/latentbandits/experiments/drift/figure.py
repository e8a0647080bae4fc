"""Regret against the switch probability; those that know it solid, their twins dashed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from latentbandits.experiments.drift.settings import KINDS, KNOWING, PROBABILITIES, name
from latentbandits.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {
    "UCB1": "#8c8c8c",
    "TS": "#4d4d4d",
    "mUCB": "#56b4e9",
    "mmUCB": "#cc79a7",
    "mTS": "#0072b2",
    "mmTS": "#d55e00",
}
_LINES = {"window": "-", "discounted": ":", "Markov": "-"}


def draw(results: Mapping[str, Results], runs: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, kind in zip(panels, KINDS, strict=True):
        points = [results[name(kind if p > 0 else "markov", p)] for p in PROBABILITIES]
        for policy in points[0]:
            twin = KNOWING.get(policy, policy)
            line = _LINES[policy.split()[0]] if policy in KNOWING else "--"
            line = "-." if "cautious" in policy else line
            estimates = [point[policy].regret for point in points]
            axes.errorbar(
                range(len(points)),
                [estimate.mean for estimate in estimates],
                [estimate.stderr for estimate in estimates],
                fmt=line,
                color=_COLOURS[twin],
                label=policy,
                linewidth=1.4,
                marker="o",
                markersize=3,
            )
        axes.set_xticks(range(len(points)), [f"{p:g}" for p in PROBABILITIES])
        axes.set_xlabel("switch probability")
        axes.set_title({"markov": "Markov switching", "piecewise": "piecewise constant"}[kind])
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("regret")
    panels[0].set_yscale("log")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(
        f"A state that moves: {runs} runs, one standard error; dashed: takes it as fixed",
        fontsize=11,
    )
    return figure
