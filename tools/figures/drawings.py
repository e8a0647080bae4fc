"""Drawings that explain: the parts and the loop between them, and one user's belief.

They are narrow, so that a phone of 390 pixels shows 9 points as 11 pixels.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentbandits import Agent, mmTS
from latentbandits.learning import fit
from latentbandits.report import drawing
from tools import drinks

WIDTH = 4.5
"""Inches."""

BOX = (0.25, 0.2)  # width and height of a box, in shares of the drawing
LOG, MODEL, SERVICE, DECISIONS = (0.13, 0.8), (0.5, 0.8), (0.87, 0.8), (0.87, 0.17)


def architecture() -> Figure:
    """Draw the way from a log to a service, and back from its log to a better model."""
    figure = Figure(figsize=(WIDTH, 2.4))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    _box(axes, LOG, "your log", drawing.GREY)
    _box(axes, MODEL, "model of\nuser types", drawing.BLUE)
    _box(axes, SERVICE, "service", drawing.ORANGE)
    _box(axes, DECISIONS, "its own log", drawing.GREY)
    half, high = BOX[0] / 2, BOX[1] / 2
    _arrow(axes, (LOG[0] + half, LOG[1]), (MODEL[0] - half, MODEL[1]))
    _arrow(axes, (MODEL[0] + half, MODEL[1]), (SERVICE[0] - half, SERVICE[1]))
    _arrow(axes, (SERVICE[0], SERVICE[1] - high), (DECISIONS[0], DECISIONS[1] + high))
    corner = (MODEL[0], DECISIONS[1])
    axes.plot([DECISIONS[0] - half, corner[0]], [corner[1]] * 2, color=drawing.DARK, lw=1.6)
    _arrow(axes, corner, (MODEL[0], MODEL[1] - high))
    _label(axes, ((LOG[0] + MODEL[0]) / 2, 0.93), "fit", "center")
    _label(axes, ((MODEL[0] + SERVICE[0]) / 2, 0.93), "serve", "center")
    _label(axes, (0.84, 0.49), "decisions and\nrewards of users", "right")
    _label(axes, (0.47, 0.36), "relearn", "right")
    _label(axes, (0.47, 0.19), "only if it is better on\nsessions set aside", "right")
    return figure


def _box(axes: Axes, middle: tuple[float, float], text: str, colour: str) -> None:
    corner = (middle[0] - BOX[0] / 2, middle[1] - BOX[1] / 2)
    axes.bar(middle[0], BOX[1], BOX[0], bottom=corner[1], color=colour, alpha=0.25)
    axes.text(*middle, text, ha="center", va="center", fontsize=10, weight="bold")


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.plot(*zip(start, end, strict=True), color=drawing.DARK, lw=1.6)
    right, up = np.sign(np.round(np.subtract(end, start), 6))
    marker = {(1, 0): ">", (0, 1): "^", (0, -1): "v"}[int(right), int(up)]
    back = (end[0] - 0.012 * right, end[1] - 0.02 * up)
    axes.plot(*back, marker=marker, color=drawing.DARK, markersize=7)


def _label(axes: Axes, place: tuple[float, float], text: str, align: str) -> None:
    """Write at an arrow: commands, which are one word, as code."""
    family = "sans-serif" if " " in text else "monospace"
    axes.text(*place, text, ha=align, va="center", fontsize=9, color=drawing.DARK, family=family)


def belief(rounds: int = 8) -> Figure:
    """Draw what is believed about one visitor of the cafe, who loves tea, after each drink."""
    learned = fit(drinks.PATH, user="customer", action="drink", reward="stars", quick=True)
    names = learned.catalogue.ids
    tea = drinks.MEAN_STARS[1]
    agent, rng = Agent(mmTS(learned.model), seed=0), np.random.default_rng(0)
    believed = []
    for _ in range(rounds):
        offered = agent.decide("ann")
        believed.append(agent.state_probabilities("ann"))
        agent.update(offered, drinks.stars(tea[drinks.DRINKS.index(names[offered.action])], rng))
    believed.append(agent.state_probabilities("ann"))
    favourites = learned.model.expected_rewards(None)[0].argmax(axis=1)
    figure = drawing.new_figure(2.8, "One visitor who loves tea")
    figure.set_size_inches(WIDTH, 2.8)
    axes = figure.subplots()
    colours = (drawing.GREEN, drawing.ORANGE, drawing.PINK)
    for favourite, colour, line in zip(favourites, colours, np.transpose(believed), strict=True):
        label = f"loves\n{names[favourite]}"
        axes.plot(range(rounds + 1), line, color=colour, marker="o", markersize=3.5, label=label)
    axes.set_ylim(-0.03, 1.03)
    drawing.plain(axes, x="drinks rated so far", y="believed probability")
    drawing.label_lines(axes)
    return figure
