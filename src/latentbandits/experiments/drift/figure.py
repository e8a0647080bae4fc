"""Regret against the switch probability, and of every policy in the long problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.experiments.drift.settings import (
    KNOWING,
    LONG_PROBABILITY,
    LONG_PROBLEM,
    PROBABILITIES,
    PROBLEM,
    name,
)
from latentbandits.simulation.plots import label_lines
from latentbandits.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {
    "UCB1": "#8c8c8c",
    "TS": "#4d4d4d",
    "mUCB": "#56b4e9",
    "mmUCB": "#cc79a7",
    "mTS": "#0072b2",
    "mmTS": "#d55e00",
}
_PANELS = {
    "no model: UCB1 and TS": ("UCB1", "TS"),
    "mUCB": ("mUCB",),
    "mmUCB": ("mmUCB",),
    "mTS": ("mTS",),
    "mmTS": ("mmTS",),
}
"""Small multiples: each panel has some policies and the ones that know of switches beside them."""

_KNOWING_COLOURS = ("#009e73", "#b07d2b")
_KIND = "markov"  # piecewise switches give nearly the same lines; the tables have both


def draw(short: Mapping[str, Results], long: Mapping[str, Results], runs: int) -> Figure:
    """Draw a panel for each policy with its knowing twins, and one for the long problem."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.2), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    points = [short[name(_KIND if p > 0 else "markov", p)] for p in PROBABILITIES]
    highest = max(result.regret.mean for point in points for result in point.values())
    for axes, (title, fixed) in zip(panels, _PANELS.items(), strict=False):
        axes.set_title(title, fontsize=10)
        axes.set_ylim(0, 1.05 * highest)
        _draw_probabilities(axes, points, fixed)
        label_lines(axes)
    panels[0].set_ylabel("regret")
    panels[3].set_ylabel("regret")
    if long:
        _draw_long(panels[5], long)
    panels[5].set_title(
        f"{LONG_PROBLEM.n_actions} actions, long runs, p={LONG_PROBABILITY:g}", fontsize=10
    )
    for axes in panels:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"Users who change, {PROBLEM.n_actions} actions: {runs} runs, one standard error\n"
        "dashed: takes the state as fixed",
        fontsize=11,
    )
    return figure


def _draw_probabilities(axes: Any, points: list[Results], fixed: tuple[str, ...]) -> None:
    """Draw regret against the switch probability for some policies and their knowing twins."""
    shown = [policy for policy in points[0] if KNOWING.get(policy, policy) in fixed]
    twins = [policy for policy in shown if policy in KNOWING]
    for policy in shown:
        colour = _COLOURS[policy] if policy in _COLOURS else _KNOWING_COLOURS[twins.index(policy)]
        estimates = [point[policy].regret for point in points]
        mean = [estimate.mean for estimate in estimates]
        style = "-" if policy in KNOWING else "--"
        axes.plot(range(len(points)), mean, style, color=colour, label=_short(policy), marker="o",
                  markersize=3, linewidth=1.6)  # fmt: skip
        error = [estimate.stderr for estimate in estimates]
        axes.errorbar(range(len(points)), mean, error, fmt="none", ecolor=colour)
    axes.margins(x=0.03)
    axes.set_xticks(range(len(points)), [f"{p:g}" for p in PROBABILITIES])
    axes.set_xlabel("switch probability")


def _short(policy: str) -> str:
    """Return the name of a policy without that of its twin, which is beside it."""
    words = policy.split()
    return policy if policy not in KNOWING else " ".join(words[:1] + words[2:])


def _draw_long(axes: Any, results: Mapping[str, Results]) -> None:
    """Draw a row for each policy: a disc where the state moves at random, a square else."""
    policies = list(next(iter(results.values())))
    for (kind, marker), result in zip((("Markov", "o"), ("piecewise", "s")), results.values(),
                                      strict=True):  # fmt: skip
        for row, policy in enumerate(policies):
            colour = _COLOURS[KNOWING.get(policy, policy)]
            estimate = result[policy].regret
            axes.errorbar(
                estimate.mean,
                row,
                xerr=estimate.stderr,
                fmt=marker,
                color=colour,
                markerfacecolor=colour if policy in KNOWING else "white",
                markersize=5,
                label=kind if row == 0 else None,
            )
    axes.set_yticks(range(len(policies)), policies, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("regret (hollow: fixed state)")
    axes.legend(fontsize=7, frameon=False)
