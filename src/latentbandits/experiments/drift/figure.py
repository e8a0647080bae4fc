"""The figure of regret by switch probability, and of every policy in the long problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from latentbandits.experiments.drift.settings import (
    KNOWING,
    LONG_PROBABILITY,
    LONG_PROBLEM,
    PROBABILITIES,
    PROBLEM,
    name,
)
from latentbandits.report.drawing import (
    BLUE,
    BROWN,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    SMALL,
    WIDTH,
    draw_line,
    estimates,
    label_lines,
    plain,
)
from latentbandits.report.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"UCB1": GREY, "TS": DARK, "mUCB": SKY, "mmUCB": PINK, "mTS": BLUE, "mmTS": ORANGE}
_PANELS = {
    "no model: UCB1 and TS": ("UCB1", "TS"),
    "mUCB": ("mUCB",),
    "mmUCB": ("mmUCB",),
    "mTS": ("mTS",),
    "mmTS": ("mmTS",),
}
"""The panels: policies that take the state as fixed; their switching counterparts are added."""

_KNOWING_COLOURS = (GREEN, BROWN)
_KIND = "markov"  # piecewise switches give nearly the same lines; the tables show both


_Point = Mapping[str, Estimate]


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw a panel per policy with its switching counterparts, and the long runs."""
    from matplotlib.figure import Figure

    by_setting = estimates(results["policies"], "regret")
    points = [by_setting[name(_KIND, p)] for p in PROBABILITIES]
    long = {
        kind: by_setting.get(name(kind, LONG_PROBABILITY), {}) for kind in ("markov", "piecewise")
    }
    figure = Figure(figsize=(WIDTH, 6.2 if not any(long.values()) else 9.4), layout="constrained")
    grid = figure.add_gridspec(3, 3, height_ratios=(1, 1, 1.1))
    highest = max(estimate.mean for point in points for estimate in point.values())
    for place, (title, fixed) in enumerate(_PANELS.items()):
        axes = figure.add_subplot(grid[divmod(place, 3)])
        axes.set_title(title, fontsize=10)
        axes.set_ylim(0, 1.05 * highest)
        _draw_probabilities(axes, points, fixed)
        if place % 3 == 0:
            axes.set_ylabel("regret", fontsize=SMALL)
        label_lines(axes)
    if any(long.values()):
        _draw_long(figure.add_subplot(grid[2, :]), long)
    runs = results["settings"]["runs"]
    figure.suptitle(
        f"Users who change, {PROBLEM.n_actions} actions: {runs} runs, one standard error\n"
        "dashed and hollow: takes the state as fixed",
        fontsize=11,
    )
    return {"drift": figure}


def _draw_probabilities(axes: Any, points: Sequence[_Point], fixed: tuple[str, ...]) -> None:
    """Draw regret by switch probability for some policies and their switching counterparts."""
    shown = [policy for policy in points[0] if KNOWING.get(policy, policy) in fixed]
    twins = [policy for policy in shown if policy in KNOWING]
    for policy in shown:
        colour = _COLOURS[policy] if policy in _COLOURS else _KNOWING_COLOURS[twins.index(policy)]
        style = "-" if policy in KNOWING else "--"
        curve = [point[policy] for point in points]
        draw_line(axes, range(len(points)), curve, style, colour, _short(policy))
    plain(axes)
    axes.margins(x=0.03)
    axes.set_xticks(range(len(points)), [f"{p:g}" for p in PROBABILITIES])
    axes.set_xlabel("switch probability", fontsize=SMALL)


def _short(policy: str) -> str:
    """Return the name of a policy without the name of its counterpart."""
    words = policy.split()
    return policy if policy not in KNOWING else "\n".join(words[:1] + words[2:])


def _draw_long(axes: Any, results: Mapping[str, _Point]) -> None:
    """Draw a row per policy: a disc for Markov switches, a square for piecewise ones."""
    policies = list(next(iter(results.values())))
    for (kind, by_policy), marker, above in zip(results.items(), "os", (True, False), strict=True):
        for row, policy in enumerate(policies):
            colour = _COLOURS[KNOWING.get(policy, policy)]
            face = colour if policy in KNOWING else "white"
            axes.errorbar(by_policy[policy].mean, row, xerr=by_policy[policy].stderr, fmt=marker,
                          color=colour, markerfacecolor=face, markersize=6)  # fmt: skip
        words = {"markov": "disc: Markov", "piecewise": "square: piecewise"}[kind]
        axes.annotate(words, (0.99, 0.94 if above else 0.86), xycoords="axes fraction",
                      ha="right", va="top", fontsize=SMALL)  # fmt: skip
    plain(axes)
    axes.set_yticks(range(len(policies)), policies)
    axes.set_ylim(len(policies) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel("regret", fontsize=SMALL)
    axes.set_title(f"{LONG_PROBLEM.n_actions} actions, long runs, p={LONG_PROBABILITY:g}",
                   fontsize=10)  # fmt: skip
