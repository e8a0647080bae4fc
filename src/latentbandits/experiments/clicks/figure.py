"""The figure of new users' click rates by round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from latentbandits.models.checks import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d2b", "#56b4e9", "#8c8c8c", "#000000")


def draw(curves: Mapping[str, FloatArray], recommended: str) -> Figure:
    """Draw each policy's true click rate, averaged over five rounds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 4.6), layout="constrained")
    axes = figure.subplots()
    for (name, curve), colour in zip(curves.items(), _COLOURS * 2, strict=False):
        rounds = np.arange(1, len(curve) + 1).reshape(-1, 5).mean(axis=1)
        flat = name in ("popularity", "knowing the state")
        label = f"{name} (recommended)" if name == recommended else name
        width = 2.2 if name == recommended else 1.2
        smooth = curve.reshape(-1, 5).mean(axis=1)
        axes.plot(rounds, smooth, "--" if flat else "-", color=colour, lw=width, label=label)
    axes.set_xlabel("round")
    axes.set_ylabel("true click rate")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    return figure
