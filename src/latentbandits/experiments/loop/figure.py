"""The figure of regret per session by phase of the closed loop, with the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from latentbandits.report.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    SMALL,
    WIDTH,
    draw_line,
    estimates,
    label_lines,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Draw a figure for each kind of users in results.json."""
    return {
        "loop" if users == "simulated" else f"loop-{users}": _draw(users, results)
        for users in results["settings"]["users"]
    }


def _draw(users: str, results: Mapping[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    by_setting = estimates(results["policies"], "regret")
    phases = [
        next(iter(by_policy.values())) for name, by_policy in by_setting.items()
        if name.startswith(f"{users}, phase ")
    ]  # fmt: skip
    reference, aim = next(iter(by_setting[f"{users}, reference"].items()))
    numbers = range(1, len(phases) + 1)
    figure = Figure(figsize=(WIDTH, 3.8), layout="constrained")
    axes = figure.subplots()
    draw_line(axes, numbers, phases, "-", ORANGE, "the service")
    axes.plot([1, len(phases)], [aim.mean, aim.mean], color=BLUE, lw=1.6, label=reference)
    top = 1.15 * max(phase.mean for phase in phases)
    for number, run in zip(numbers, results["settings"]["runs"][users], strict=True):
        if run["decision"] == "activate" and number < len(phases):
            axes.axvline(number + 0.5, color=GREEN, lw=1.2, ls="--")
            axes.annotate(" new model", (number + 0.5, top), color=GREEN, fontsize=SMALL, va="top")
    plain(axes)
    axes.set_xticks(numbers)
    axes.set_xlim(1 - 0.02, len(phases) + 0.02)
    axes.set_ylim(0, top)
    axes.set_xlabel("phase", fontsize=SMALL)
    axes.set_ylabel("regret per session", fontsize=SMALL)
    axes.set_title(f"A service that learns from its own log, {users} users", fontsize=11)
    label_lines(axes)
    return figure
