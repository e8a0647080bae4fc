"""The figure of the benchmark: what states gained, beside what held-out evidence said before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from latentbandits.experiments.experiment import Figures
from latentbandits.report import drawing
from latentbandits.report.report import Estimate


def draw(results: Mapping[str, Any]) -> Figures:
    """Return a figure with a row for each problem, in the order of the evidence for states."""
    found = sorted(gains(results), key=lambda one: one[1].mean)
    if not found:
        return {}
    figure = drawing.new_figure(1.4 + 0.36 * len(found), width=drawing.NARROW)
    left, right = figure.subplots(1, 2, sharey=True)
    for row, (_, nats, shares) in enumerate(found):
        for axes, estimate, offset, colour in (
            (left, nats, 0.0, drawing.DARK),
            (right, shares["first"], 0.15, drawing.ORANGE),
            (right, shares["all"], -0.15, drawing.BLUE),
        ):
            axes.errorbar(estimate.mean, row + offset, xerr=2 * estimate.stderr, fmt="o",
                          color=colour, ms=4, lw=1.4)  # fmt: skip
    for axes in (left, right):
        axes.axvline(0.0, color=drawing.GREY, lw=1)
    left.set_xscale("symlog", linthresh=0.1)
    drawing.plain(left, x="nats a user, held-out", title="evidence for states")
    drawing.plain(right, x="share of best less worst", title="gain over one state")
    left.set_yticks(range(len(found)), [name for name, _, _ in found])
    left.set_xticks([-1.0, 0.0, 1.0, 10.0], ["-1", "0", "1", "10"])
    for place, text, colour in ((0.98, "rounds 1-10", drawing.ORANGE), (0.91, "all", drawing.BLUE)):
        right.text(0.98, place, text, color=colour, transform=right.transAxes, ha="right",
                   va="top", fontsize=drawing.SMALL)  # fmt: skip
    return {"bench": figure}


def gains(results: Mapping[str, Any]) -> Iterable[tuple[str, Estimate, dict[str, Estimate]]]:
    """Yield problem, held-out evidence, and the gains of states as shares of what can be gained.

    The share is of the lead of the best contestant over the worst, on the same users.
    """
    for one in results["settings"]["results"]:
        states = one["states"]
        if states is None or states["nats_per_user"] is None:
            continue
        rows = [row for row in results["policies"] if row["setting"] == one["problem"]]
        rows = [row for row in rows if row["form"] == rows[0]["form"]]
        shares = {}
        for key in ("first", "all"):
            rewards = [row[f"{key}_reward"] for row in rows]
            span = max(rewards) - min(rewards)
            mean, stderr = states[f"{key}_gain"], states[f"{key}_gain_stderr"]
            shares[key] = Estimate(mean / span, stderr / span)
        nats = Estimate(states["nats_per_user"], states["nats_stderr"] or 0.0)
        yield one["problem"], nats, shares
