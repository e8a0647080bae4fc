"""The figure of a fit: what it was chosen from, who its states are, and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#8c8c8c"
_RANKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d2b", "#56b4e9")


def draw(report: Mapping[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7.4), layout="constrained")
    panels = figure.subplots(2, 3)
    _candidates(panels[0, 0], report, "evidence", "log density of a held-out reward (nats)")
    _candidates(panels[0, 1], report, "rmse", "held-out root mean square error")
    _shares(panels[0, 2], report)
    _calibration(panels[1, 0], report)
    _rounds(panels[1, 1], report)
    _epsilon(panels[1, 2], report)
    for axes in panels.flat:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    log = report["log"]
    figure.suptitle(
        f"{log['users']:,} users, {log['actions']:,} actions, {log['rewards']:,} rewards",
        fontsize=12,
    )
    return figure


def _candidates(axes: Axes, report: Mapping[str, Any], what: str, label: str) -> None:
    """A line for each rank over the numbers of states; a ring around what was chosen."""
    rows = [row for row in report["selection"] if row[what] is not None]
    for i, rank in enumerate(dict.fromkeys(row["rank"] for row in rows)):
        own = [row for row in rows if row["rank"] == rank]
        name = None if rank is None else f"rank {rank}"
        colour = _RANKS[i % len(_RANKS)]
        states, values = [row["states"] for row in own], [row[what] for row in own]
        axes.plot(states, values, "o-", color=colour, label=name, ms=4, lw=1.3)
    chosen = next(row for row in rows if row["chosen"])
    axes.plot(chosen["states"], chosen[what], "o", ms=12, mfc="none", mec="black", label="chosen")
    axes.set_xlabel("states")
    axes.set_title(label, fontsize=10)
    axes.set_xticks(sorted({row["states"] for row in rows}))
    axes.legend(frameon=False, fontsize=8)


def _shares(axes: Axes, report: Mapping[str, Any]) -> None:
    states = report["states"]
    place = np.arange(len(states))
    axes.barh(place, [state["share"] for state in states], color=_BLUE, height=0.6)
    for y, state in zip(place, states, strict=True):
        axes.annotate(
            f" {state['share']:.0%}; mean reward {state['mean_reward']:.3g}",
            (state["share"], y),
            va="center",
            fontsize=8,
        )
    axes.set_yticks(place, [f"state {state['state']}" for state in states])
    axes.set_xlim(0, 1.45 * max(state["share"] for state in states))
    axes.invert_yaxis()
    axes.set_title("share of users in each state", fontsize=10)


def _calibration(axes: Axes, report: Mapping[str, Any]) -> None:
    """Flat if the predictive distribution is right; a U if it is too narrow."""
    heights = np.array(report["held_out"]["uniform_histogram"])
    n = len(heights)
    axes.bar((np.arange(n) + 0.5) / n, heights * n, width=0.9 / n, color=_BLUE)
    axes.axhline(1.0, color=_ORANGE, lw=1.2, label="calibrated")
    covered = {row["level"]: row["covered"] for row in report["held_out"]["coverage"]}
    axes.set_title(
        f"rewards within predictions; 90% interval held {covered[0.9]:.1%}",
        fontsize=10,
    )
    axes.set_xlabel("predictive distribution function at the reward")
    axes.legend(frameon=False, fontsize=8, loc="upper center")


def _rounds(axes: Axes, report: Mapping[str, Any]) -> None:
    rows = report["held_out"]["rmse_by_round"]
    axes.plot([row["to"] for row in rows], [row["rmse"] for row in rows], "o-", color=_BLUE, ms=4)
    axes.axhline(
        report["held_out"]["rmse_of_action_means"], color=_GREY, ls="--", lw=1.2,
        label="mean of the action over all users",
    )  # fmt: skip
    axes.axhline(
        report["uncertainty"]["noise"], color=_ORANGE, lw=1.2,
        label=f"noise of a reward, {report['uncertainty']['noise']:.3g}",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("rewards seen of a new user")
    axes.set_title("held-out error as a user becomes known", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 0.06))


def _epsilon(axes: Axes, report: Mapping[str, Any]) -> None:
    rows = report["uncertainty"]["epsilon"]
    deltas = [row["delta"] for row in rows]
    lines = (
        ("prior_all", "the model's prior, all actions", _BLUE, "-"),
        ("prior_known_well", "the model's prior, frequent actions", _BLUE, ":"),
        ("bootstrap_all", "bootstrap, all actions", _ORANGE, "-"),
        ("bootstrap_known_well", "bootstrap, frequent actions", _ORANGE, ":"),
    )
    for key, label, colour, style in lines:
        if rows[0][key] is not None:
            values = [row[key] for row in rows]
            axes.plot(deltas, values, style, marker="o", ms=4, color=colour, label=label)
    axes.set_xlabel(r"$\delta$")
    axes.set_ylim(0, None)
    axes.set_title(r"errors below $\varepsilon$ with probability $1 - \delta$", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
