"""The card that other sites show for a link: 1280 x 640 pixels."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from latentbandits import TS, mmTS, simulate
from latentbandits.environments import Synthetic
from latentbandits.simulation.plots import draw_curves

SIZE = (1280, 640)


def draw(runs: int = 400) -> Figure:
    """Return the card: the name, one sentence, and what a model of user kinds is worth."""
    players = {"from scratch": TS(10, noise=0.5), "knows the kinds of users": mmTS}
    results = simulate(players, Synthetic(model_noise=0.05), n_runs=runs, horizon=100, seed=0)
    figure = Figure(figsize=(SIZE[0] / 160, SIZE[1] / 160), facecolor="white")
    figure.text(0.06, 0.84, "latentbandits", fontsize=27, weight="bold")
    sentence = (
        "A new user, no history, a hundred items:\nfind out in a few rounds which kind this is."
    )
    figure.text(0.06, 0.66, sentence, fontsize=13, linespacing=1.5)
    axes = figure.add_axes((0.09, 0.13, 0.56, 0.44))
    draw_curves(axes, results.values(), window=3)
    colours = {"from scratch": "#8c8c8c", "knows the kinds of users": "#d55e00"}
    for line, band in zip(axes.get_lines(), axes.collections, strict=True):
        name = str(line.get_label())
        line.set(color=colours[name], linewidth=3, linestyle="-")
        band.set_color(colours[name])
        end = float(np.asarray(line.get_ydata())[-1])
        axes.annotate(name, (100, end), xytext=(8, 0), textcoords="offset points", va="center",
                      color=colours[name], fontsize=12, weight="bold")  # fmt: skip
    axes.set_xlabel("round", fontsize=10)
    axes.set_ylabel("reward", fontsize=10)
    return figure
