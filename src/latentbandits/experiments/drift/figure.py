"""Regret against the switch probability, and of every policy in the long problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.experiments.drift.settings import (
    KINDS,
    KNOWING,
    LONG_PROBABILITY,
    LONG_PROBLEM,
    PROBABILITIES,
    PROBLEM,
    name,
)
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


def draw(short: Mapping[str, Results], long: Mapping[str, Results], runs: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.6), layout="constrained")
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    panels[1].sharey(panels[0])
    for axes, kind in zip(panels, KINDS, strict=False):
        points = [short[name(kind if p > 0 else "markov", p)] for p in PROBABILITIES]
        _draw_probabilities(axes, points)
        words = {"markov": "Markov switching", "piecewise": "piecewise constant"}[kind]
        axes.set_title(f"{words}, {PROBLEM.n_actions} actions", fontsize=10)
    panels[0].set_ylabel("regret (dashed: takes the state as fixed)")
    panels[0].set_yscale("log")
    panels[0].legend(fontsize=7, frameon=False, ncols=2, handlelength=3.5)
    if long:
        _draw_long(panels[2], long)
    panels[2].set_title(
        f"p={LONG_PROBABILITY:g}, {LONG_PROBLEM.n_actions} actions, long runs", fontsize=10
    )
    for axes in panels:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"A state that moves: {runs} runs, one standard error", fontsize=11)
    return figure


def _draw_probabilities(axes: Any, points: list[Results]) -> None:
    for policy in points[0]:
        line = _LINES[policy.split()[0]] if policy in KNOWING else "--"
        line = "-." if "cautious" in policy else line
        estimates = [point[policy].regret for point in points]
        axes.errorbar(
            range(len(points)),
            [estimate.mean for estimate in estimates],
            [estimate.stderr for estimate in estimates],
            fmt=line,
            color=_COLOURS[KNOWING.get(policy, policy)],
            label=policy,
            linewidth=1.4,
            marker="o",
            markersize=3,
        )
    axes.set_xticks(range(len(points)), [f"{p:g}" for p in PROBABILITIES])
    axes.set_xlabel("switch probability")


def _draw_long(axes: Any, results: Mapping[str, Results]) -> None:
    """A row for each policy: a disc where the state moves at random, a square where in pieces."""
    policies = list(next(iter(results.values())))
    for (kind, marker), result in zip((("Markov", "o"), ("piecewise", "s")), results.values(),
                                      strict=True):  # fmt: skip
        for row, policy in enumerate(policies):
            colour = _COLOURS[KNOWING.get(policy, policy)]
            estimate = result[policy].regret
            axes.errorbar(
                estimate.mean,
                row,
                xerr=estimate.stderr,
                fmt=marker,
                color=colour,
                markerfacecolor=colour if policy in KNOWING else "white",
                markersize=5,
                label=kind if row == 0 else None,
            )
    axes.set_yticks(range(len(policies)), policies)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("regret (hollow: takes the state as fixed)")
    axes.legend(fontsize=7, frameon=False)
