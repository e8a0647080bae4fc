"""The figure of the errors of learned means and shares by size of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.experiments.spectral.measure import METHODS
from latentbandits.report.drawing import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    SMALL,
    WIDTH,
    label_lines,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = dict(zip(METHODS, (ORANGE, GREEN, BLUE, GREY), strict=True))
_STYLES = {"spectral": "o", "em": "-"}  # EM ends at the same point as EM from the moments


_TICKS = (0.005, 0.01, 0.02, 0.05)


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw two panels with a line for each method and one of slope -1/2."""
    from matplotlib.figure import Figure

    rows = results["settings"]["errors"]
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    for axes, what in zip(figure.subplots(1, 2), ("means", "shares"), strict=True):
        for method, colour in _COLOURS.items():
            of_method = [row for row in rows if row["method"] == method]
            x, y = [row["users"] for row in of_method], [row[what] for row in of_method]
            axes.plot(x, y, _STYLES.get(method, "o-"), color=colour, ms=5, lw=1.4, label=method)
            error = [row[f"{what}_stderr"] for row in of_method]
            axes.errorbar(x, y, error, fmt="none", ecolor=colour)
        sizes = np.array(sorted({row["users"] for row in rows}), dtype=float)
        start = float(next(row[what] for row in rows if row["method"] == "moments"))
        axes.plot(sizes, start * np.sqrt(sizes[0] / sizes), ":", color=DARK, lw=1.2,
                  label=r"slope $-1/2$")  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain(axes)
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axes.set_yticks([tick for tick in _TICKS if axes.get_ylim()[0] <= tick])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.margins(y=0.06)
        axes.set_xlim(0.97 * sizes[0], 1.03 * sizes[-1])
        axes.set_xlabel("users in the log", fontsize=SMALL)
        axes.set_title(f"error of the {what}", fontsize=10)
        label_lines(axes)
    figure.suptitle("Learning by moments, by EM, and with the labels known", fontsize=11)
    return {"spectral": figure}
