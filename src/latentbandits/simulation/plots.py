"""Reward over time, one line per policy with a band of one standard error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from latentbandits.models.checks import FloatArray
from latentbandits.report.drawing import MOST_LABELLED, NARROW, label_lines, new_figure, plain
from latentbandits.simulation.simulate import PolicyResult, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour per policy family and one dash per variant, the same in every figure.
_COLOURS = {
    "UCB": "#8c8c8c",
    "TS": "#4d4d4d",
    "EXP4": "#b07d2b",
    "mUCB": "#56b4e9",
    "mTS": "#0072b2",
    "mmTS": "#d55e00",
    "IDS": "#009e73",
    "Greedy": "#cc79a7",
    "Popularity": "#000000",
}
_LINES = {
    "UCB1": ("UCB", "-"), "LinUCB": ("UCB", "-"), "UCB1(scale=0.5)": ("UCB", ":"),
    "TS": ("TS", "-"), "LinTS": ("TS", "-"), "EXP4": ("EXP4", "-"),
    "mUCB": ("mUCB", "-"), "mmUCB": ("mUCB", ":"), "mTS": ("mTS", "-"), "mmTS": ("mmTS", "-"),
    "mIDS": ("IDS", ":"), "mmIDS": ("IDS", "-"), "mmGreedy": ("Greedy", "-"),
    "Popularity": ("Popularity", "--"),
}  # fmt: skip


def draw_curves(
    axes: Axes,
    results: Iterable[PolicyResult],
    which: Literal["mean", "worst"] = "mean",
    window: int | None = None,
) -> None:
    """Draw a moving average for each policy, with its standard error.

    `window` is the number of rounds that are averaged; None: a tenth of all rounds, at most 10.
    """
    from matplotlib.ticker import MaxNLocator

    width = window or 1
    for result in results:
        mean = result.curve if which == "mean" else result.worst_curve
        error = result.curve_stderr if which == "mean" else result.worst_curve_stderr
        colour, line = _style(result.policy)
        rounds = np.arange(1, len(mean) + 1)
        width = window or max(1, min(10, len(mean) // 10))
        smooth, band = moving_average(mean, width), moving_average(error, width)
        axes.plot(rounds, smooth, line, color=colour, label=result.policy, linewidth=1.6)
        axes.fill_between(rounds, smooth - band, smooth + band, color=colour, alpha=0.2, lw=0)
    axes.set_xlabel("round" if width == 1 else f"round (mean of the last {width})")
    axes.margins(x=0, y=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain(axes)


def name_lines(figure: Figure, panels: Sequence[Axes]) -> None:
    """Label the lines of every panel where they end; where they are many, by one legend."""
    if all(len(axes.get_legend_handles_labels()[0]) <= MOST_LABELLED for axes in panels):
        for axes in panels:
            label_lines(axes)
        return
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)


def draw_results(
    results: Results, title: str, label: str, not_drawn: tuple[str, ...] = ()
) -> Figure:
    """Draw two panels over time: all runs, and the tenth of runs that earned least.

    Policies of `not_drawn` are left out, to reduce clutter, if others remain.
    """
    shown = [policy for name, policy in results.items() if name not in not_drawn]
    figure = new_figure(6, title, NARROW)
    top, bottom = figure.subplots(2, 1, sharex=True)
    draw_curves(top, shown or list(results.values()), "mean")
    draw_curves(bottom, shown or list(results.values()), "worst")
    top.set_title("all users", fontsize=11)
    bottom.set_title("the 10% of users who earned least", fontsize=11)
    top.set_xlabel("")
    for axes in (top, bottom):
        axes.set_ylabel(label)
    name_lines(figure, (top, bottom))
    return figure


def _style(policy: str) -> tuple[str, str]:
    family, line = _LINES.get(policy, (None, "--"))
    # Other policies get a colour by a hash of the name.
    return (_COLOURS[family] if family else f"C{sum(policy.encode()) % 10}"), line


def moving_average(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of the last `window` rounds, of fewer at the start."""
    total = np.cumsum(values)
    lagged = np.concatenate([np.zeros(min(window, len(total))), total[:-window]])[: len(total)]
    smooth: FloatArray = (total - lagged) / np.minimum(np.arange(1, len(values) + 1), window)
    return smooth
