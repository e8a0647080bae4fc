"""Figures of `fit`, `evaluate`, lists and the demonstration, on data that the docs use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from examples import demo as demonstration
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from latentbandits import BernoulliArms, GaussianArms, mmGreedy, mmTS, mTS
from latentbandits.evaluation import evaluate as estimate
from latentbandits.evaluation.reading import read_decisions
from latentbandits.evaluation.report_tables import figure as draw_evaluation
from latentbandits.learning import fit as learn
from latentbandits.learning.assess.figures import draw_verdict
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.clicks import AnyClickModel, Cascade
from latentbandits.policies import Exploring
from latentbandits.policies.lists import decide_list, update_list
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.report.drawing import BLUE, GREY, ORANGE, SKY, SMALL, new_figure, plain

DRINKS = Path(__file__).parents[2] / "examples" / "data" / "drinks.csv"


def fit() -> Figure:
    """Draw the verdict on the tutorial's log."""
    result = learn(DRINKS, user="customer", action="drink", reward="stars")
    return draw_verdict(result.report)


def evaluate(n_sessions: int = 4000, rounds: int = 5) -> Figure:
    """Draw what the live model and a better one would earn, from a log with exploration."""
    rng = np.random.default_rng(1)
    truth = np.array([[0.9, 0.5, 0.4, 0.1], [0.1, 0.9, 0.4, 0.5], [0.5, 0.1, 0.9, 0.4]])
    live = GaussianArms(truth + 0.15 * rng.standard_normal(truth.shape), noise=0.5, spread=0.15)
    policy = Exploring(mmTS(live), 0.2)
    rows: list[tuple[Any, ...]] = []
    state, belief = rng.integers(3, size=n_sessions), policy.init(n_sessions)
    for t in range(rounds):
        decision = policy.decide(belief, None, rng)
        reward = truth[state, decision.action] + 0.5 * rng.standard_normal(n_sessions)
        belief = policy.update(belief, None, decision, reward)
        rows += zip(range(n_sessions), [t + 1] * n_sessions, decision.action, reward,
                    decision.propensity, strict=True)  # fmt: skip
    names = ("session", "round", "action", "reward", "propensity")
    table = dict(zip(names, zip(*rows, strict=True), strict=True))
    log = read_decisions(table, model=live).log
    players = {"live": mmTS(live), "new": mTS(GaussianArms(truth, noise=0.5))}
    return draw_evaluation(estimate(players, log, against="live"))


N_KINDS, OF_KIND, LENGTH, LISTS, USERS = 3, 4, 3, 8, 2_000


def lists() -> Figure:
    """Draw lists of a cascade: the first hedges over the kinds of users, the fifth does not."""
    kind_of = np.repeat(np.arange(N_KINDS), OF_KIND)
    own = kind_of == np.arange(N_KINDS)[:, None]
    worth = 1 - 0.02 * (np.arange(len(kind_of)) % OF_KIND)  # so that no two actions are equal
    rates = np.where(own, 0.3, 0.02) * worth
    model = BernoulliArms(200 * rates, 200 * (1 - rates), state_prior=[0.35, 0.33, 0.32])
    shown = {"mmGreedy, unrolled": True, "mmGreedy, the best 3": False}
    figure = new_figure(3.6)
    left, right = figure.subplots(1, 2)
    for name, unrolled in shown.items():
        kinds, clicked = _shown_kinds(mmGreedy(model), rates, kind_of, unrolled)
        several = [[len(set(row)) for row in one] for one in kinds]  # (LISTS, USERS)
        colour = ORANGE if unrolled else BLUE
        places = np.arange(1, LISTS + 1)
        right.plot(places, np.mean(several, axis=1), "o-", color=colour, label=name, ms=4)
        if unrolled:
            _draw_user(left, kinds, clicked)
    plain(right, "list of a new user", "", "kinds of actions in a list, mean of 2,000 users")
    right.set_ylim(0.9, N_KINDS + 0.1)
    right.legend(frameon=False, fontsize=SMALL)
    return figure


def _shown_kinds(
    policy: AnyPolicy, rates: FloatArray, kind_of: IntArray, unrolled: bool
) -> tuple[IntArray, BoolArray]:
    """Return the kinds of the actions shown to users of the second kind, and their clicks."""
    rng, belief = np.random.default_rng(1), policy.init(USERS)
    kinds, clicked = [], []
    for _ in range(LISTS):
        decided: AnyClickModel = "cascade" if unrolled else "each"
        one = decide_list(policy, belief, None, rng, LENGTH, decided, propensity=False)
        attracted = rng.random((USERS, LENGTH)) < rates[1, one.actions]
        rewards = Cascade().react(attracted.astype(np.float64), np.zeros((USERS, LENGTH)))
        belief = update_list(policy, belief, None, one, rewards, "cascade")
        kinds.append(kind_of[one.actions])
        clicked.append(rewards == 1)
    return np.array(kinds), np.array(clicked)


def _draw_user(axes: Axes, kinds: IntArray, clicked: BoolArray) -> None:
    """Draw the lists of the first user whose first list was clicked at its second position."""
    user = int(clicked[0, :, 1].argmax())
    colours = (GREY, ORANGE, SKY)
    for number in range(5):
        for position in range(LENGTH):
            kind = int(kinds[number, user, position])
            corner = (number + 0.55, position + 0.55)
            axes.add_patch(Rectangle(corner, 0.9, 0.9, color=colours[kind]))
            mark = "ABC"[kind] + (", click" if clicked[number, user, position] else "")
            axes.text(number + 1, position + 1, mark, ha="center", va="center", fontsize=SMALL)
    axes.set_xlim(0.4, 5.6)
    axes.set_ylim(LENGTH + 0.6, 0.4)
    axes.set_yticks(range(1, LENGTH + 1))
    plain(axes, "list", "position", "one user who wants B: kinds of the actions shown")
    axes.grid(visible=False)


def demo() -> Figure:
    """Draw the result of the demonstration, from the log that `make demo` left."""
    log = demonstration.OUT / "log.parquet"
    if not log.exists():
        raise SystemExit(f"there is no {log}: run `make demo` first")
    return demonstration.draw(pl.read_parquet(log))
