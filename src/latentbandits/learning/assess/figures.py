"""Draw the figures of a fit: verdict, model selection, states and calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.learning.assess.report_tables import shown_in_round
from latentbandits.report.drawing import (
    BLUE,
    BROWN,
    DARK,
    GREEN,
    GREY,
    MOST_LABELLED,
    NARROW,
    ORANGE,
    PINK,
    SKY,
    SMALL,
    label_lines,
    new_figure,
    plain,
)
from latentbandits.simulation.plots import moving_average

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_RANKS = (BLUE, ORANGE, GREEN, PINK, BROWN)
_BASELINES = {
    "uniform": (GREY, ":"),
    "popularity": (DARK, "-"),
    "one state": (BROWN, "--"),
    "factorisation": (GREEN, "--"),
    "TS": (SKY, "--"),
    "LinTS": (SKY, "--"),
}
_WINDOW = 5  # rounds of the moving average in the verdict's figure
_CURVE = ("reward", "stderr")
_SMALLEST_SPAN = 5e-3  # of the axis of scores, relative to the scores


def draw_verdict(report: Mapping[str, Any]) -> Figure:
    """Draw the reward by round of the recommended policy and baselines, and all differences."""
    judged = report["judgement"]
    policies = list(dict.fromkeys(row["policy"] for row in judged["replay"]))
    heights = (2.8, 1.2 + 0.3 * len(policies))
    figure = new_figure(sum(heights), width=NARROW)
    top, bottom = figure.subplots(2, 1, height_ratios=heights)
    _reward_by_round(top, judged)
    _differences(bottom, judged, policies)
    label_lines(top)
    return figure


def _reward_by_round(axes: Axes, judged: Mapping[str, Any]) -> None:
    """Draw moving averages with bands of one standard error."""
    shown = [*_BASELINES, judged["recommended_policy"]]
    for curve in judged["curves"]:
        name = curve["policy"]
        if name not in shown:
            continue
        colour, line = _BASELINES.get(name, (ORANGE, "-"))
        mean, error = (moving_average(np.array(curve[key]), _WINDOW) for key in _CURVE)
        rounds = np.arange(1, len(mean) + 1)
        width = 2.2 if colour == ORANGE else 1.5
        axes.plot(rounds, mean, line, color=colour, lw=width, label=_in_lines(name))
        axes.fill_between(rounds, mean - error, mean + error, color=colour, alpha=0.15, lw=0)
    last = max(judged["horizon"], 2)
    axes.set_xlim(1, last)
    axes.set_xticks(sorted({1, *(round(last * share) for share in (0.2, 0.4, 0.6, 0.8, 1.0))}))
    one = shown_in_round(judged)
    what = f"{one} with a new user (mean of {_WINDOW} {one}s, 1 s.e.)"
    plain(axes, what, "reward", f"held-out users: reward by {one}")


def _in_lines(name: str) -> str:
    """Break a policy's name before its options, to fit beside a panel."""
    return name.replace("(", "\n(", 1)


def _differences(axes: Axes, judged: Mapping[str, Any], policies: list[str]) -> None:
    """Draw paired differences from popularity with intervals of two standard errors."""
    rows = {row["policy"]: row for row in judged["replay"] if row["rounds"] == judged["horizon"]}
    names = sorted(
        (name for name in policies if name not in ("popularity", "uniform")),
        key=lambda name: rows[name]["over_popularity"],
    )
    for y, name in enumerate(names):
        lead, error = rows[name]["over_popularity"], 2 * rows[name]["over_popularity_stderr"]
        chosen = name == judged["recommended_policy"]
        colour = ORANGE if chosen else _BASELINES.get(name, (BLUE, "-"))[0]
        axes.errorbar(lead, y, xerr=error, fmt="o", color=colour, ms=5, lw=1.5, capsize=2)
    axes.axvline(0, color=DARK, lw=1.2)
    one = shown_in_round(judged)
    what = f"reward per {one} compared with popularity (2 s.e.)"
    plain(axes, what, "", f"{one}s 1-{judged['horizon']}; bold: recommended")
    axes.set_yticks(range(len(names)), [_in_lines(name) for name in names])
    if judged["recommended_policy"] in names:
        place = names.index(judged["recommended_policy"])
        axes.get_yticklabels()[place].set_color(ORANGE)
        axes.get_yticklabels()[place].set_fontweight("bold")
    axes.margins(y=0.08)
    axes.locator_params(axis="x", nbins=4)  # labels such as -0.0125 are long


def draw_lists(report: Mapping[str, Any]) -> Figure:
    """Draw the mean reward by position, and how often each position is looked at if it is known."""
    lists = report["lists"]
    figure = new_figure(3.2)
    left, right = figure.subplots(1, 2)
    places = np.arange(1, len(lists["reward"]) + 1)
    left.plot(places, lists["reward"], "o-", color=BLUE, ms=5)
    plain(left, "position", "", "mean reward of the logged rows")
    title = f"looked at (click model {lists['name']}; 2 s.e.)"
    if "examination" in lists:
        looked = np.array(lists["examination"][: len(places)])
        errors = 2 * np.array(lists["examination_stderr"] or np.zeros(len(looked)))
        right.errorbar(places, looked, yerr=errors, fmt="o-", color=ORANGE, ms=5, capsize=2)
    elif lists["name"] == "each":
        right.plot(places, np.ones(len(places)), "o-", color=ORANGE, ms=5)
    else:
        rows = np.array(lists["observed"]) / np.maximum(lists["rows"], 1)
        right.plot(places, rows, "o-", color=ORANGE, ms=5)
        title = "share of rows that were observed (click model cascade)"
    plain(right, "position", "", title)
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.set_xticks(places)
    return figure


def draw(report: Mapping[str, Any]) -> Figure:
    """Draw model selection, states, calibration and errors in six panels."""
    log = report["log"]
    figure = new_figure(
        10, f"{log['users']:,} users, {log['actions']:,} actions, {log['rewards']:,} rewards"
    )
    panels = figure.subplots(3, 2)
    _candidates(panels[0, 0], report, "evidence", "log density of a held-out reward (nats)")
    _candidates(panels[0, 1], report, "rmse", "held-out root mean square error")
    _shares(panels[1, 0], report)
    _calibration(panels[1, 1], report)
    _rounds(panels[2, 0], report)
    _epsilon(panels[2, 1], report)
    for axes in panels.flat:
        label_lines(axes)
    return figure


def _candidates(axes: Axes, report: Mapping[str, Any], what: str, label: str) -> None:
    """Draw a line for each rank over the numbers of states; a ring marks the chosen one.

    If there are many ranks, only the best are drawn.
    """
    rows = [row for row in report["selection"] if row[what] is not None]
    best = {rank: _best(rows, rank, what) for rank in dict.fromkeys(row["rank"] for row in rows)}
    drawn = sorted(best, key=lambda rank: best[rank])[:MOST_LABELLED]
    for rank, colour in zip([rank for rank in best if rank in drawn], _RANKS, strict=False):
        of_rank = [row for row in rows if row["rank"] == rank]
        name = "_" if rank is None else f"rank {rank}"
        states, values = [row["states"] for row in of_rank], [row[what] for row in of_rank]
        axes.plot(states, values, "o-", color=colour, label=name, ms=4, lw=1.3)
    chosen = next(row for row in rows if row["chosen"])
    axes.plot(chosen["states"], chosen[what], "o", ms=12, mfc="none", mec="black", label="_")
    axes.annotate("chosen", (chosen["states"], chosen[what]), xytext=(9, -15),
                  textcoords="offset points", fontsize=SMALL)  # fmt: skip
    plain(axes, "states", "", label)
    axes.set_xticks(sorted({row["states"] for row in rows}))
    axes.margins(x=0.04, y=0.16)
    low, high = axes.get_ylim()
    least = _SMALLEST_SPAN * max(abs(low), abs(high))
    if high - low < least:  # equal for all that matters: not a slope
        axes.set_ylim((low + high - least) / 2, (low + high + least) / 2)


def _best(rows: list[Mapping[str, Any]], rank: int | None, what: str) -> float:
    """Return the best (smallest) value of a rank."""
    sign = -1.0 if what == "evidence" else 1.0
    return min(sign * float(row[what]) for row in rows if row["rank"] == rank)


def _shares(axes: Axes, report: Mapping[str, Any]) -> None:
    from matplotlib.ticker import PercentFormatter

    states = report["states"]
    place = np.arange(len(states))
    axes.barh(place, [state["share"] for state in states], color=BLUE, height=0.6)
    for y, state in zip(place, states, strict=True):
        inside = state["share"] > 0.5
        axes.annotate(
            f" {state['share']:.0%}; mean reward {state['mean_reward']:.3g} ",
            (state["share"], y),
            ha="right" if inside else "left",
            color="white" if inside else "black",
            va="center",
            fontsize=SMALL,
        )
    axes.set_yticks(place, [f"state {number + 1}" for number in place])
    axes.set_xlim(0, 1)
    axes.set_ylim(len(states) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    plain(axes, "", "", "share of users in each state")


def _calibration(axes: Axes, report: Mapping[str, Any]) -> None:
    """Draw the histogram of `uniform`: flat if calibrated, U-shaped if predictions are narrow."""
    heights = np.array(report["held_out"]["uniform_histogram"])
    n = len(heights)
    axes.bar((np.arange(n) + 0.5) / n, heights * n, width=0.9 / n, color=BLUE)
    axes.plot([0, 1], [1, 1], color=ORANGE, lw=1.4, label="if right")
    covered = {row["level"]: row["covered"] for row in report["held_out"]["coverage"]}
    title = f"calibration; the 90% interval held {covered[0.9]:.1%}"
    plain(axes, "predictive distribution function at the reward", "", title)
    axes.set_xlim(0, 1)


def _rounds(axes: Axes, report: Mapping[str, Any]) -> None:
    rows = report["held_out"]["rmse_by_round"]
    ticks = [row["to"] for row in rows]
    ends = [ticks[0], ticks[-1]]
    axes.plot(ticks, [row["rmse"] for row in rows], "o-", color=BLUE, ms=4, label="the model")
    mean = report["held_out"]["rmse_of_action_means"]
    axes.plot(ends, [mean, mean], color=GREY, ls="--", lw=1.4, label="the action's\nmean")
    if report["family"] == "gaussian":
        noise = report["uncertainty"]["noise"]
        axes.plot(ends, [noise, noise], color=ORANGE, lw=1.4, label=f"noise {noise:.3g}")
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    plain(axes, "rewards seen of a new user", "", "held-out error as a user becomes known")
    axes.margins(x=0.03, y=0.12)


def _epsilon(axes: Axes, report: Mapping[str, Any]) -> None:
    rows = report["uncertainty"]["epsilon"]
    deltas = [row["delta"] for row in rows]
    lines = (
        ("prior_all", "prior", BLUE, "-"),
        ("prior_known_well", "prior,\nfrequent", SKY, ":"),
        ("bootstrap_all", "bootstrap", ORANGE, "-"),
        ("bootstrap_known_well", "bootstrap,\nfrequent", BROWN, ":"),
    )
    drawn = []
    for key, label, colour, style in lines:
        values = [row[key] for row in rows]
        if values[0] is not None and values not in drawn:  # all actions may be frequent
            drawn.append(values)
            axes.plot(deltas, values, style, marker="o", ms=4, color=colour, label=label)
    title = r"errors below $\varepsilon$ with probability $1 - \delta$"
    plain(axes, r"$\delta$ (frequent: actions with many rewards)", "", title)
    axes.set_xlim(min(deltas) - 0.01, max(deltas) + 0.01)
    axes.set_ylim(0, None)
