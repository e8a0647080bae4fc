"""The figure of every estimator's bias and spread, for each kind of log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.report.drawing import BLUE, ORANGE, SMALL, WIDTH, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw a panel for each log: mean estimates, and one standard deviation."""
    from matplotlib.figure import Figure

    loggers = list(dict.fromkeys(row["setting"] for row in results["policies"]))
    truth = results["settings"]["true_value"]
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    panels = figure.subplots(1, len(loggers), sharex=True, sharey=True)
    for axes, logger in zip(panels, loggers, strict=True):
        rows = [row for row in results["policies"] if row["setting"] == logger]
        values, spreads = ([row[key] for row in rows] for key in ("bias", "deviation"))
        places = range(len(rows))
        axes.errorbar([truth + bias for bias in values], places, xerr=spreads, fmt="o", color=BLUE,
                      ms=6, lw=1.8, capsize=3)  # fmt: skip
        axes.axvline(truth, color=ORANGE, lw=1.4)
        plain(axes)
        axes.set_yticks(places, [row["estimator"] for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.9)
        axes.annotate(" true value", (truth, -0.8), color=ORANGE, fontsize=SMALL, va="top")
        axes.set_title(f"{logger} log", fontsize=10)
        axes.set_xlabel("estimated reward of a session", fontsize=SMALL)
    logs, sessions = (results["settings"][key] for key in ("logs", "sessions"))
    figure.suptitle(f"{logs:,} logs of {sessions:,} sessions: mean and deviation of each estimator",
                    fontsize=11)  # fmt: skip
    return {"evaluation": figure}
