"""Reward over time, one line per policy with a band of one standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np

from latentbandits.models.checks import FloatArray
from latentbandits.simulation.results import PolicyResult, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour per idea and one dash per variant, the same in every figure; readable without colour.
_COLOURS = {
    "UCB": "#8c8c8c",
    "TS": "#4d4d4d",
    "EXP4": "#b07d2b",
    "mUCB": "#56b4e9",
    "mTS": "#0072b2",
    "mmTS": "#d55e00",
    "IDS": "#009e73",
    "Greedy": "#cc79a7",
}
_LINES = {
    "UCB1": ("UCB", "-"), "LinUCB": ("UCB", "-"), "UCB1(scale=0.5)": ("UCB", ":"),
    "TS": ("TS", "-"), "LinTS": ("TS", "-"), "EXP4": ("EXP4", "-"),
    "mUCB": ("mUCB", "-"), "mmUCB": ("mUCB", ":"), "mTS": ("mTS", "-"), "mmTS": ("mmTS", "-"),
    "mIDS": ("IDS", ":"), "mmIDS": ("IDS", "-"), "mmGreedy": ("Greedy", "-"),
}  # fmt: skip


def draw_curves(
    axes: Axes,
    results: Iterable[PolicyResult],
    which: Literal["mean", "worst"] = "mean",
    window: int = 10,
) -> None:
    """Lines of a moving average over `window` rounds, so that runs in the hundreds can be read."""
    for result in results:
        mean = result.curve if which == "mean" else result.worst_curve
        error = result.curve_stderr if which == "mean" else result.worst_curve_stderr
        colour, line = _style(result.policy)
        rounds = np.arange(1, len(mean) + 1)
        smooth, band = _moving_average(mean, window), _moving_average(error, window)
        axes.plot(rounds, smooth, line, color=colour, label=result.policy, linewidth=1.4)
        axes.fill_between(rounds, smooth - band, smooth + band, color=colour, alpha=0.2, lw=0)
    axes.set_xlabel("round")
    axes.margins(x=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw_results(
    results: Results, title: str, label: str, not_drawn: tuple[str, ...] = ()
) -> Figure:
    """Two panels over time: all runs, and the tenth of runs that earned least.

    Policies of `not_drawn` are left out, to reduce clutter, if others remain.
    """
    from matplotlib.figure import Figure

    shown = [policy for name, policy in results.items() if name not in not_drawn]
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


def _style(policy: str) -> tuple[str, str]:
    family, line = _LINES.get(policy, (None, "--"))
    # A policy of the user's own: a colour that its name settles.
    return (_COLOURS[family] if family else f"C{sum(policy.encode()) % 10}"), line


def _moving_average(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of the last `window` rounds, of fewer at the start."""
    total = np.cumsum(values)
    lagged = np.concatenate([np.zeros(min(window, len(total))), total[:-window]])[: len(total)]
    smooth: FloatArray = (total - lagged) / np.minimum(np.arange(1, len(values) + 1), window)
    return smooth
