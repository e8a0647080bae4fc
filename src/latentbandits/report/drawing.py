"""The look of every figure: text that is readable on its page, lines labelled where they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.report.report import Estimate, estimate_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0
"""Inches. A page shows a figure 830 pixels wide: 9 points are then 11.5 pixels high."""

NARROW = 5.6
"""Inches of a figure that phones show too, 358 pixels wide: 9 points are then 8 pixels high.

Its panels stand one below the other.
"""

SMALL = 9.0
"""Points of the smallest text."""

MOST_LABELLED = 5
"""Lines of a panel that can be told apart and labelled where they end."""

BLUE, ORANGE, GREEN, PINK, BROWN = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d2b"
SKY, GREY, DARK = "#56b4e9", "#8c8c8c", "#4d4d4d"

MOST_NUMBERED = 12
"""Columns of a grid whose cells have room for their numbers."""

_SHORT_NAME = 12  # letters of a column's name that fit without being turned
_LABEL_GAP = 0.16  # between two labels, in inches


def estimates(rows: Iterable[Mapping[str, Any]], metric: str) -> dict[str, dict[str, Estimate]]:
    """Return a metric of rows of results.json, by setting and then by policy.

    >>> estimates([{"setting": "a", "policy": "TS", "regret": 2.0, "regret_stderr": 0.1}], "regret")
    {'a': {'TS': Estimate(mean=2.0, stderr=0.1)}}
    """
    by_setting: dict[str, dict[str, Estimate]] = {}
    for row in rows:
        by_policy = by_setting.setdefault(row["setting"], {})
        by_policy[row["policy"]] = estimate_in(row, metric)
    return by_setting


def new_figure(height: float, title: str = "", width: float = WIDTH) -> Figure:
    """Return an empty figure, `height` inches high and as wide as a page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plain(axes: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Give the panel a light grid, no box, numbers without an offset, and the given labels."""
    from matplotlib.ticker import ScalarFormatter

    if x:
        axes.set_xlabel(x, fontsize=SMALL)
    if y:
        axes.set_ylabel(y, fontsize=SMALL)
    if title:
        axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    for axis in (axes.xaxis, axes.yaxis):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ScalarFormatter):
            formatter.set_useOffset(False)


def draw_line(
    axes: Axes, x: Sequence[float], points: Sequence[Estimate], style: str, colour: str, label: str
) -> None:
    """Draw a line through estimates, with an error bar of one standard error at each."""
    mean = [point.mean for point in points]
    axes.plot(x, mean, style, color=colour, label=label, marker="o", markersize=3.5, linewidth=1.6)
    axes.errorbar(x, mean, [point.stderr for point in points], fmt="none", ecolor=colour)


def label_lines(axes: Axes) -> None:
    """Write the name of each line beside its end, in its colour, without overlaps.

    Call it when the limits of the axes are final. Lines that end inside the panel are labelled
    at the right edge too.

    Args:
        axes: a panel of a figure whose size is final.
    """
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    if not lines:
        return
    axes.get_ylim()  # forces autoscaling of the limits, which transData does not
    values = np.array([_end(line) for line in lines])
    points = axes.transData.transform(np.stack([np.zeros_like(values), values], axis=1))
    ends = axes.transAxes.inverted().transform(points)[:, 1]
    inches = axes.get_position().height * axes.figure.get_size_inches()[1]  # type: ignore[union-attr]
    order = np.argsort(ends)
    deepest = max(str(line.get_label()).count("\n") + 1 for line in lines)
    heights = spread_out([float(ends[i]) for i in order], _LABEL_GAP * deepest / inches)
    for place, i in enumerate(order):
        axes.annotate(
            str(lines[i].get_label()), (1, heights[place]), xycoords="axes fraction",
            xytext=(5, 0), textcoords="offset points", va="center", fontsize=SMALL,
            color=lines[i].get_color(),
        )  # fmt: skip


def _end(line: Any) -> float:
    """Return the height of a line at its right end."""
    return float(np.asarray(line.get_ydata())[int(np.argmax(line.get_xdata()))])


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Return increasing heights in [0, 1] that are at least `gap` apart, near the given ones.

    Heights that are too near become a run around their middle.

    >>> [round(one, 2) for one in spread_out([0.5, 0.5, 0.9], 0.1)]
    [0.45, 0.55, 0.9]
    """
    runs: list[tuple[float, int]] = []  # the middle and the number of labels of each run
    for height in heights:
        middle, size = height, 1
        while runs and runs[-1][0] + gap * (runs[-1][1] + size) / 2 > middle:
            before, number = runs.pop()
            middle = (before * number + middle * size) / (number + size)
            size += number
        runs.append((middle, size))
    placed = [middle + gap * (k - (size - 1) / 2) for middle, size in runs for k in range(size)]
    shift = min(0.0, 1.0 - placed[-1]) if placed else 0.0
    return [height + shift for height in placed]


def draw_grid(
    values: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str], title: str
) -> Figure:
    """Draw a table of numbers as coloured cells, with the numbers in them where they fit."""
    figure = new_figure(1.2 + 0.35 * len(rows), title, min(WIDTH, 2.5 + len(columns)))
    axes = figure.subplots()
    cells = axes.imshow(values, aspect="auto", cmap="viridis")
    axes.set_yticks(range(len(rows)), rows, fontsize=SMALL, parse_math=False)  # a name may have "$"
    long = len(columns) > MOST_NUMBERED or any(len(name) > _SHORT_NAME for name in columns)
    axes.set_xticks(
        range(len(columns)), columns, fontsize=SMALL, parse_math=False,
        rotation=40 if long else 0, ha="right" if long else "center",
    )  # fmt: skip
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if len(columns) > MOST_NUMBERED:
        figure.colorbar(cells, ax=axes)
        return figure
    middle = (float(values.min()) + float(values.max())) / 2
    for (row, column), value in np.ndenumerate(values):
        colour = "black" if value > middle else "white"
        axes.text(column, row, f"{value:.3g}", ha="center", va="center", color=colour, size=SMALL)
    return figure
