"""The figure of every family's regret, as a share of the regret without the latent model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.report.drawing import BLUE, DARK, ORANGE, SMALL, WIDTH, estimates, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"TS": DARK, "mTS": BLUE, "mmTS": ORANGE}


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw a row for each family and a dot for each policy."""
    from matplotlib.figure import Figure

    by_setting = estimates(results["policies"], "regret")
    policies = results["settings"]["policies"]
    whole = "TS" if "TS" in policies else policies[0]
    figure = Figure(figsize=(WIDTH, 0.42 * len(by_setting) + 1.6), layout="constrained")
    axes = figure.subplots()
    first = [one.mean / next(iter(by_setting.values()))[whole].mean
             for one in next(iter(by_setting.values())).values()]  # fmt: skip
    for policy in policies:
        shares = [family[policy].mean / family[whole].mean for family in by_setting.values()]
        errors = [family[policy].stderr / family[whole].mean for family in by_setting.values()]
        places = range(len(by_setting))
        axes.errorbar(shares, places, xerr=errors, fmt="o", color=_COLOURS[policy], ms=6, lw=1.8)
        side = -1 if shares[0] == min(first) else 1
        axes.annotate(policy, (shares[0], 0), xytext=(6 * side, 8), textcoords="offset points",
                      ha="right" if side < 0 else "left", color=_COLOURS[policy],
                      weight="bold")  # fmt: skip
    plain(axes)
    axes.axvline(1, color=DARK, lw=1)
    axes.set_yticks(range(len(by_setting)), list(by_setting))
    axes.set_ylim(len(by_setting) - 0.5, -0.8)
    axes.set_xlim(left=0)
    words = " (no model of states)" if whole == "TS" else ""
    axes.set_xlabel(f"regret, as a share of that of {whole}{words}", fontsize=SMALL)
    runs = results["settings"]["runs"]
    axes.set_title(f"Every family on its own problem: {runs} runs, one standard error", fontsize=11)
    return {"families": figure}
