"""Ratios to the optimum: one row per policy, one point per problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latentbandits.experiments.yardstick.play import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KNOWN, _UNCERTAIN = "#0072b2", "#d55e00"


def draw(measured: Sequence[Measured], chosen: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure

    total = sum(one.optimum for one in measured)
    overall = {
        policy: sum(one.regrets[policy].mean for one in measured) / total for policy in chosen
    }
    ranked = sorted(chosen, key=lambda policy: overall[policy])
    figure = Figure(figsize=(9, 1.2 + 0.32 * len(ranked)), layout="constrained")
    axes = figure.subplots()
    for known, colour, shift in ((True, _KNOWN, -0.12), (False, _UNCERTAIN, 0.12)):
        some = [one for one in measured if one.problem.known == known]
        for place, policy in enumerate(ranked):
            ratios = [max(one.ratio(policy), 0.9) for one in some]
            label = ("known model" if known else "uncertain model") if place == 0 else None
            axes.plot(ratios, [place + shift] * len(ratios), ".", color=colour, alpha=0.35,
                      markersize=6, label=label)  # fmt: skip
    axes.plot([overall[p] for p in ranked], range(len(ranked)), "k|", markersize=16,
              label="summed regrets")  # fmt: skip
    axes.set_yticks(range(len(ranked)), ranked)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xticks([1, 1.5, 2, 3, 5, 10, 20], ["1", "1.5", "2", "3", "5", "10", "20"])
    axes.set_xlabel("Bayes regret, as a multiple of the smallest possible")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title(f"How far from the best possible: {len(measured)} small problems", fontsize=11)
    return figure
