"""Regret and worst-decile reward over sigma0, with all states known and with one missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.experiments.misspecification.settings import (
    CATCH_ALL,
    MISSING,
    MODEL_NOISES,
    name,
)
from latentbandits.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = {
    "TS": ("#4d4d4d", "-"),
    "mUCB": ("#56b4e9", "-"),
    "mmUCB": ("#56b4e9", ":"),
    "mTS": ("#0072b2", "-"),
    "mIDS": ("#009e73", ":"),
    "mmTS": ("#d55e00", "-"),
    "mmIDS": ("#009e73", "-"),
    CATCH_ALL: ("#cc79a7", "-"),
}


def draw(results: Mapping[str, Results], runs: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for column, n_missing in enumerate(MISSING):
        points = [results[name(sigma0, n_missing)] for sigma0 in MODEL_NOISES]
        for row, metric in enumerate(("regret", "worst_decile_reward")):
            axes = panels[row, column]
            for policy in points[0]:
                _line(axes, policy, [getattr(point[policy], metric) for point in points])
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0, column].set_title(
            "all 5 states known" if not n_missing else "4 of 5 states known"
        )
        panels[1, column].set_xlabel(r"error of the model, $\sigma_0$")
    panels[0, 0].set_ylabel("regret")
    panels[1, 0].set_ylabel("mean reward, worst 10% of runs")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(f"Wrong models: {runs} runs, one standard error", fontsize=11)
    return figure


def _line(axes: Any, policy: str, estimates: list[Any]) -> None:
    colour, line = _STYLES[policy]
    axes.errorbar(
        MODEL_NOISES,
        [estimate.mean for estimate in estimates],
        [estimate.stderr for estimate in estimates],
        fmt=line,
        color=colour,
        label=policy,
        linewidth=1.4,
        marker="o",
        markersize=3,
    )
