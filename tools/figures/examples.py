"""Figures of `fit`, `evaluate` and the demonstration, on data that the documentation uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from examples import demo as demonstration
from matplotlib.figure import Figure

from latentbandits import GaussianArms, mmTS, mTS
from latentbandits.evaluation import evaluate as estimate
from latentbandits.evaluation.reading import read_decisions
from latentbandits.evaluation.tables import figure as draw_evaluation
from latentbandits.learning import fit as learn
from latentbandits.learning.assess.figures import draw_verdict
from latentbandits.policies import Exploring

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


def demo() -> Figure:
    """Draw the result of the demonstration, from the log that `make demo` left."""
    log = demonstration.OUT / "log.parquet"
    if not log.exists():
        raise SystemExit(f"there is no {log}: run `make demo` first")
    return demonstration.draw(pl.read_parquet(log))
