"""The figure of regret and worst-decile reward by sigma0, with and without a missing state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.experiments.misspecification.settings import (
    CATCH_ALL,
    MISSING,
    MODEL_NOISES,
    name,
)
from latentbandits.report.drawing import (
    BLUE,
    DARK,
    GREEN,
    ORANGE,
    PINK,
    SMALL,
    WIDTH,
    draw_line,
    estimates,
    label_lines,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"TS": DARK, "mTS": BLUE, "mmTS": ORANGE, "mmIDS": GREEN, CATCH_ALL: PINK}
"""The policies in the figure; the tables show all."""


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw four panels: two metrics, with and without a missing state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 6.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for row, metric in enumerate(("regret", "worst_decile_reward")):
        by_setting = estimates(results["policies"], metric)
        for column, n_missing in enumerate(MISSING):
            points = [by_setting[name(sigma0, n_missing)] for sigma0 in MODEL_NOISES]
            for policy in (one for one in _COLOURS if one in points[0]):
                curve = [point[policy] for point in points]
                draw_line(panels[row, column], MODEL_NOISES, curve, "-", _COLOURS[policy], policy)
            plain(panels[row, column])
    for column, title in enumerate(("all 5 states known", "4 of 5 states known")):
        panels[0, column].set_title(title, fontsize=10)
        panels[1, column].set_xlabel(r"error of the model, $\sigma_0$", fontsize=SMALL)
    panels[0, 0].set_ylabel("regret", fontsize=SMALL)
    panels[1, 0].set_ylabel("mean reward, worst 10% of runs", fontsize=SMALL)
    panels[0, 0].set_xlim(MODEL_NOISES[0] - 0.01, MODEL_NOISES[-1] + 0.01)
    for axes in panels.flat:
        label_lines(axes)
    runs = results["settings"]["runs"]
    figure.suptitle(f"Wrong models: {runs} runs, one standard error", fontsize=11)
    return {"misspecification": figure}
