"""The figure of ratios to the optimum, with a row per policy and a point per problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.report.drawing import BLUE, ORANGE, SMALL, WIDTH, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = ((True, BLUE, -0.14, "known model"), (False, ORANGE, 0.14, "uncertain model"))
_TICKS = (1, 1.5, 2, 3, 5, 10, 20, 40)


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw every policy, sorted by the sum of regrets."""
    from matplotlib.figure import Figure

    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in results["policies"]:
        if row["policy"] in results["settings"]["policies"]:
            rows.setdefault(row["policy"], []).append(row)
    overall = {
        policy: sum(row["regret"] for row in points) / sum(row["optimal_regret"] for row in points)
        for policy, points in rows.items()
    }
    ranked = sorted(rows, key=lambda policy: overall[policy])
    figure = Figure(figsize=(WIDTH, 1.4 + 0.29 * len(ranked)), layout="constrained")
    axes = figure.subplots()
    largest = 1.0
    for known, colour, shift, words in _KINDS:
        for place, policy in enumerate(ranked):
            ratios = [max(row["ratio"], 0.95) for row in rows[policy] if row["known"] == known]
            largest = max(largest, *ratios, 1.0)
            axes.plot(ratios, [place + shift] * len(ratios), ".", color=colour, alpha=0.35, ms=6)
        axes.annotate(words, (1, 1), xycoords="axes fraction", xytext=(-4, -60 * shift - 18),
                      textcoords="offset points", ha="right", color=colour)  # fmt: skip
    axes.plot([overall[p] for p in ranked], range(len(ranked)), "k|", markersize=14)
    axes.annotate("bar: ratio of summed regrets", (1, 1), xycoords="axes fraction",
                  xytext=(-4, -42), textcoords="offset points", ha="right")  # fmt: skip
    axes.set_xscale("log")
    plain(axes)
    axes.set_yticks(range(len(ranked)), ranked)
    axes.set_ylim(len(ranked) - 0.5, -0.7)
    ticks = [tick for tick in _TICKS if tick <= largest]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlim(0.94, 1.04 * largest)
    axes.set_xlabel("Bayes regret, as a multiple of the smallest possible", fontsize=SMALL)
    n_problems = len(next(iter(rows.values())))
    axes.set_title(f"How far from the best possible: {n_problems} small problems", fontsize=11)
    return {"yardstick": figure}
