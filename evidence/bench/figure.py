"""The figure of the benchmark: what states gained, over what held-out evidence said before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.report import drawing
from latentbandits.report.report import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Return a figure with a point for each problem, in rounds 1-10 and in all rounds."""
    found = sorted(gains(results), key=lambda one: one[1].mean)
    if not found:
        return {}
    title = "Gain of states over one state, both greedy; two standard errors"
    figure = drawing.new_figure(7.6, title, drawing.NARROW)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, key, label in zip(
        panels, ("first", "all"), ("rounds 1-10", "all rounds"), strict=True
    ):
        axes.axhline(0.0, color=drawing.GREY, linewidth=1)
        axes.axvline(0.0, color=drawing.GREY, linewidth=1)
        for place, (name, nats, gain) in enumerate(found):
            share = gain[key]
            clear = abs(nats.mean) > 2 * nats.stderr
            colour = drawing.BLUE if clear else drawing.GREY
            axes.errorbar(nats.mean, share.mean, yerr=2 * share.stderr, xerr=2 * nats.stderr,
                          fmt="o", color=colour, ms=4, lw=1.2)  # fmt: skip
            beside = (4, 4 if place % 2 else -12)
            axes.annotate(name, (nats.mean, share.mean), xytext=beside, color=colour,
                          textcoords="offset points", fontsize=drawing.SMALL)  # fmt: skip
        axes.set_xscale("symlog", linthresh=0.1)
        drawing.plain(axes, y="gain / (best - worst contestant)", title=label)
    panels[-1].set_xlabel(
        "held-out evidence of states less one state, nats a user (grey: within two errors of 0)",
        fontsize=drawing.SMALL,
    )
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
