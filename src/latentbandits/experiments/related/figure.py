"""One figure per table: cumulative regret over rounds, or bars where there are many policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = ("-", "--", ":", "-.")


def draw_bars(title: str, results: Mapping[str, Results]) -> Figure:
    """Draw the regret of every policy, one panel per problem, shortest bars on top."""
    from matplotlib.figure import Figure

    tallest = max(len(result) for result in results.values())
    figure = Figure(figsize=(4.2 * len(results) + 1, 0.27 * tallest + 1.6), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(results)))
    for axes, (name, result) in zip(panels, results.items(), strict=True):
        order = sorted(result, key=lambda policy: result[policy].regret.mean)
        regrets = [result[policy].regret for policy in order]
        axes.barh(
            range(len(order)),
            [regret.mean for regret in regrets],
            xerr=[regret.stderr for regret in regrets],
            color="#0072b2",
            alpha=0.85,
        )
        axes.set_yticks(range(len(order)), order, fontsize=7)
        axes.invert_yaxis()
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("regret", fontsize=8)
        _clean(axes)
    figure.suptitle(title, fontsize=10)
    return figure


def draw_curves(title: str, results: Mapping[str, Results]) -> Figure:
    """Draw cumulative regret over rounds, one panel per problem."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6 * len(results), 4.8), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(results)))
    names = list(dict.fromkeys(policy for result in results.values() for policy in result))
    colours = colormaps["tab10"].colors  # type: ignore[attr-defined]
    style = {
        name: (colours[i % len(colours)], _LINES[i // len(colours) % len(_LINES)])
        for i, name in enumerate(names)
    }
    for axes, (name, result) in zip(panels, results.items(), strict=True):
        for policy in result:
            curve = result[policy].regret_curve
            rounds = np.unique(np.linspace(0, len(curve) - 1, 200).astype(int))
            colour, line = style[policy]
            axes.plot(rounds + 1, curve[rounds], line, color=colour, label=policy, linewidth=1.3)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("round", fontsize=8)
        axes.set_ylabel("cumulative regret", fontsize=8)
        _clean(axes)
    handles = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=7
    )
    figure.suptitle(title, fontsize=10)
    return figure


def _clean(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
