"""Regret of every family, as a share of that without the latent model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from latentbandits.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"TS": "#4d4d4d", "mTS": "#0072b2", "mmTS": "#d55e00"}


def draw(results: Mapping[str, Results], runs: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    policies = list(next(iter(results.values())))
    whole = "TS" if "TS" in policies else policies[0]
    for place, policy in enumerate(policies):
        wholes = [result[whole].regret.mean for result in results.values()]
        shares = [
            result[policy].regret.mean / base
            for result, base in zip(results.values(), wholes, strict=True)
        ]
        errors = [
            result[policy].regret.stderr / base
            for result, base in zip(results.values(), wholes, strict=True)
        ]
        places = [i + 0.25 * (place - 1) for i in range(len(results))]
        axes.barh(places, shares, 0.22, xerr=errors, color=_COLOURS[policy], label=policy)
    axes.set_yticks(range(len(results)), list(results))
    axes.invert_yaxis()
    axes.set_xlabel(f"regret, as a share of {whole}'s")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title(f"Every family on its own problem: {runs} runs, one standard error", fontsize=11)
    return figure
