"""Show an evaluation: tables for the terminal and the figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.evaluation.evaluate import LOGGED, Evaluation
from latentbandits.report.drawing import (
    BLUE,
    BROWN,
    DARK,
    GREEN,
    GREY,
    NARROW,
    ORANGE,
    PINK,
    SMALL,
    label_lines,
    new_figure,
    plain,
)
from latentbandits.report.report import Estimate, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PREFERRED = ("SNDR", "SNIPS", "DR", "IPS", "DM", "replay", "queue", "mean")
_COLOURS = (ORANGE, BLUE, GREEN, PINK, BROWN)


def tables(evaluation: Evaluation) -> list[Table]:
    """Return the estimates, and the differences where they were asked for."""
    rounds = f"rounds 1-{evaluation.horizon}" if evaluation.horizon > 1 else "one round"
    shown = [
        Table(
            f"Reward per session, {rounds} ({evaluation.horizon_reason}); "
            f"{evaluation.n_sessions} sessions",
            ("policy", "estimator", "reward", "95% interval", "per round", "least ESS"),
            [_estimate_row(row) for row in evaluation.estimates],
        )
    ]
    if evaluation.differences:
        against = evaluation.differences[0]["against"]
        shown.append(
            Table(
                f"Difference from {against}, paired by session, {rounds}",
                ("policy", "estimator", "difference", "95% interval", "verdict"),
                [_difference_row(row) for row in evaluation.differences],
            )
        )
    return shown


def target_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of a log's policy: the estimated reward beside the mean reward of that log."""
    return Table(
        "The target log itself: what it earned, and the estimate minus that",
        ("estimator", "estimate", "earned", "difference", "95% interval"),
        [
            (
                row["estimator"],
                str(Estimate(row["value"], row["stderr"])),
                str(Estimate(row["own"], row["own_stderr"])),
                f"{row['difference']:.4g}",
                _interval(row),
            )
            for row in rows
        ],
    )


def figure(evaluation: Evaluation, max_policies: int = 5) -> Figure:
    """Draw the value of each round with its interval, and the effective sample size below."""
    from matplotlib.ticker import LogFormatter, MaxNLocator

    title = f"What each policy would have earned: {evaluation.n_sessions:,} sessions"
    drawn = new_figure(5.0, title, NARROW)
    top, bottom = drawn.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    policies = list(dict.fromkeys(row["policy"] for row in evaluation.rounds))
    candidates = [name for name in policies if name != LOGGED][: max_policies - 1]
    for name, colour in zip(candidates, _COLOURS, strict=False):
        rows = _curve(evaluation.rounds, name)
        if rows:
            _line(top, rows, f"{name}\n({rows[0]['estimator']})", colour, evaluation.horizon)
            sizes = [row["ess"] for row in rows]
            if not all(math.isnan(size) for size in sizes):
                bottom.plot([row["round"] for row in rows], sizes, "-", color=colour, lw=1.4)
    logged = _curve(evaluation.rounds, LOGGED)
    if logged:
        _line(top, logged, LOGGED, DARK, evaluation.horizon)
    top.set_ylabel("reward in this round", fontsize=SMALL)
    bottom.set_ylabel("effective\nsessions", fontsize=SMALL)
    bottom.set_yscale("log")
    bottom.yaxis.set_major_formatter(LogFormatter())
    bottom.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))  # 60, not a power of ten
    if not bottom.lines:  # no weights: a single line would give the axis no extent
        bottom.set_ylim(1, 10 * max(evaluation.n_sessions, 100))
    bottom.axhline(100, color=GREY, lw=1, ls=":")
    bottom.set_xlabel("round", fontsize=SMALL)
    last = max((row["round"] for row in evaluation.rounds), default=1)
    for axes in (top, bottom):
        plain(axes)
        if evaluation.horizon < last:
            axes.axvline(evaluation.horizon + 0.5, color=GREY, lw=1, ls="--")
    bottom.set_xlim(*((1, last) if last > 1 else (0.5, 1.5)))
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_lines(top)
    return drawn


def _curve(rounds: Sequence[Mapping[str, Any]], policy: str) -> list[Mapping[str, Any]]:
    """Return the rows of the policy's most trusted estimator."""
    points = [row for row in rounds if row["policy"] == policy]
    for estimator in _PREFERRED:
        chosen = [row for row in points if row["estimator"] == estimator]
        if chosen:
            return chosen
    return []


def _line(
    axes: Axes, rows: Sequence[Mapping[str, Any]], label: str, colour: str, horizon: int
) -> None:
    """Draw a curve with its band; beyond the horizon it is not trusted and left out."""
    kept = [row for row in rows if row["round"] <= horizon]
    rounds = np.array([row["round"] for row in kept])
    value = np.array([row["value"] for row in kept])
    axes.plot(rounds, value, "o-" if len(kept) < 30 else "-", ms=3, color=colour, label=label)
    low = [row["low"] for row in kept]
    high = [row["high"] for row in kept]
    axes.fill_between(rounds, low, high, color=colour, alpha=0.2, lw=0)


def _estimate_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["policy"],
        row["estimator"],
        str(Estimate(row["value"], row["stderr"])) if row["horizon"] else "no round",
        _interval(row),
        f"{row['per_round']:.4g}" if row["horizon"] else "",
        "" if math.isnan(row["ess"]) else f"{row['ess']:.0f}",
    )


def _difference_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    value = str(Estimate(row["value"], row["stderr"]))
    return row["policy"], row["estimator"], value, _interval(row), row["verdict"]


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['low']:.4g} to {row['high']:.4g}" if math.isfinite(row["low"]) else ""
