"""The figures of a fit: its verdict, its choices, its states, and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.models.checks import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#d55e00", "#009e73", "#8c8c8c"
_RANKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d2b", "#56b4e9")
_BASELINES = {
    "uniform": (_GREY, ":"),
    "popularity": ("#4d4d4d", "-"),
    "fold-in": ("#b07d2b", "--"),
    "TS": ("#56b4e9", "--"),
    "LinTS": ("#56b4e9", "--"),
}
_WINDOW = 5  # rounds that a line of the verdict averages over


def draw_verdict(report: Mapping[str, Any]) -> Figure:
    """Reward by round of the recommended policy and the baselines; all differences beside it."""
    from matplotlib.figure import Figure

    judged = report["judgement"]
    policies = list(dict.fromkeys(row["policy"] for row in judged["replay"]))
    height = max(4.2, 1.6 + 0.32 * len(policies))
    figure = Figure(figsize=(13, height), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1))
    _reward_by_round(left, judged)
    _differences(right, judged, policies)
    return figure


def _reward_by_round(axes: Axes, judged: Mapping[str, Any]) -> None:
    """Moving averages with bands of one standard error, each named at its end."""
    shown = [*_BASELINES, judged["recommended_policy"]]
    ends = []
    for curve in judged["curves"]:
        name = curve["policy"]
        if name not in shown:
            continue
        colour, line = _BASELINES.get(name, (_ORANGE, "-"))
        mean, error = (_moving_average(np.array(curve[key])) for key in ("reward", "stderr"))
        rounds = np.arange(1, len(mean) + 1)
        axes.plot(rounds, mean, line, color=colour, lw=2.2 if colour == _ORANGE else 1.5)
        axes.fill_between(rounds, mean - error, mean + error, color=colour, alpha=0.15, lw=0)
        ends.append((float(mean[-1]), name, colour))
    last = max(judged["horizon"], 2)
    _name_ends(axes, ends, judged["horizon"])
    axes.set_xlim(1, 1 + 1.45 * (last - 1))  # room for the names
    axes.set_xticks(sorted({1, *(round(last * share) for share in (0.2, 0.4, 0.6, 0.8, 1.0))}))
    axes.set_xlabel("round with a new user")
    axes.set_title(f"held-out users: reward by round (mean of {_WINDOW}, 1 s.e.)", fontsize=10)
    _plain(axes)


def _name_ends(axes: Axes, ends: list[tuple[float, str, str]], last: int) -> None:
    """Write each line's name beside its end, moved apart where lines end close together."""
    low, high = axes.get_ylim()
    gap = (high - low) * 0.055
    place = -np.inf
    for value, name, colour in sorted(ends):
        place = max(value, place + gap)
        axes.annotate(
            f" {name}", (last, value), xytext=(last, place), color=colour, fontsize=9, va="center",
        )  # fmt: skip
    axes.set_ylim(low, max(high, place + gap / 2))


def _differences(axes: Axes, judged: Mapping[str, Any], policies: list[str]) -> None:
    """Paired differences from popularity with intervals of two standard errors."""
    rows = {row["policy"]: row for row in judged["replay"] if row["rounds"] == judged["horizon"]}
    names = sorted(
        (name for name in policies if name not in ("popularity", "uniform")),
        key=lambda name: rows[name]["over_popularity"],
    )
    for y, name in enumerate(names):
        lead, error = rows[name]["over_popularity"], 2 * rows[name]["over_popularity_stderr"]
        colour = _ORANGE if name == judged["recommended_policy"] else _BASELINES.get(
            name, (_BLUE, "-"))[0]  # fmt: skip
        axes.errorbar(lead, y, xerr=error, fmt="o", color=colour, ms=5, lw=1.5, capsize=2)
    axes.axvline(0, color="#4d4d4d", lw=1.2)
    labels = [f"{n} (recommended)" if n == judged["recommended_policy"] else n for n in names]
    axes.set_yticks(range(len(names)), labels)
    axes.margins(y=0.08)
    axes.set_xlabel("reward a round over popularity")
    axes.set_title(f"paired differences, rounds 1-{judged['horizon']} (2 s.e.)", fontsize=10)
    _plain(axes)


def _moving_average(values: FloatArray, window: int = _WINDOW) -> FloatArray:
    """The mean of the last `window` values, of fewer at the start."""
    total = np.cumsum(values)
    lagged = np.concatenate([np.zeros(min(window, len(total))), total[:-window]])[: len(total)]
    smooth: FloatArray = (total - lagged) / np.minimum(np.arange(1, len(values) + 1), window)
    return smooth


def _plain(axes: Axes) -> None:
    """A light grid, no box, and numbers written out."""
    from matplotlib.ticker import ScalarFormatter

    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, ScalarFormatter):
            formatter.set_useOffset(False)


def _legend(axes: Axes, columns: int = 3) -> None:
    """A legend below the axes, where no data are."""
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16),
                ncols=columns, columnspacing=1.2, handlelength=1.6)  # fmt: skip


def draw(report: Mapping[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 8.2), layout="constrained")
    panels = figure.subplots(2, 3)
    _candidates(panels[0, 0], report, "evidence", "log density of a held-out reward (nats)")
    _candidates(panels[0, 1], report, "rmse", "held-out root mean square error")
    _shares(panels[0, 2], report)
    _calibration(panels[1, 0], report)
    _rounds(panels[1, 1], report)
    _epsilon(panels[1, 2], report)
    for axes in panels.flat:
        _plain(axes)
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
    axes.margins(x=0.08, y=0.12)
    _legend(axes, 4)


def _shares(axes: Axes, report: Mapping[str, Any]) -> None:
    from matplotlib.ticker import PercentFormatter

    states = report["states"]
    place = np.arange(len(states))
    axes.barh(place, [state["share"] for state in states], color=_BLUE, height=0.6)
    for y, state in zip(place, states, strict=True):
        inside = state["share"] > 0.5
        axes.annotate(
            f" {state['share']:.0%}; mean reward {state['mean_reward']:.3g} ",
            (state["share"], y),
            ha="right" if inside else "left",
            color="white" if inside else "black",
            va="center",
            fontsize=8,
        )
    axes.set_yticks(place, [f"state {state['state']}" for state in states])
    axes.set_xlim(0, 1)
    axes.set_ylim(len(states) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
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
    axes.set_xlim(0, 1)
    _legend(axes)


def _rounds(axes: Axes, report: Mapping[str, Any]) -> None:
    rows = report["held_out"]["rmse_by_round"]
    axes.plot([row["to"] for row in rows], [row["rmse"] for row in rows], "o-", color=_BLUE, ms=4)
    axes.axhline(
        report["held_out"]["rmse_of_action_means"], color=_GREY, ls="--", lw=1.2,
        label="mean of the action over all users",
    )  # fmt: skip
    if report["family"] == "gaussian":
        axes.axhline(
            report["uncertainty"]["noise"], color=_ORANGE, lw=1.2,
            label=f"noise of a reward, {report['uncertainty']['noise']:.3g}",
        )  # fmt: skip
    axes.set_xscale("log")
    ticks = [row["to"] for row in rows]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("rewards seen of a new user")
    axes.set_title("held-out error as a user becomes known", fontsize=10)
    axes.margins(y=0.12)
    _legend(axes, 2)


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
    _legend(axes, 2)
