"""How often the state switches, and every policy with and without knowing that it does."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from latentbandits.environments import Switching, Synthetic
from latentbandits.experiments.sweep import Policies, Setting
from latentbandits.models import GaussianArms, Markov
from latentbandits.policies import (
    TS,
    UCB1,
    Discounted,
    SlidingWindow,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)

PROBABILITIES = (0.0, 0.005, 0.02, 0.05)
KINDS: tuple[Literal["markov", "piecewise"], ...] = ("markov", "piecewise")
PROBLEM = Synthetic(model_noise=0.05)
HORIZON = 500
RUNS = 200

KNOWING = {
    "Markov mTS": "mTS",
    "Markov mmTS": "mmTS",
    "Markov mTS, cautious": "mTS",
    "window mUCB": "mUCB",
    "discounted mUCB": "mUCB",
    "window mmUCB": "mmUCB",
    "discounted mmUCB": "mmUCB",
    "window UCB1": "UCB1",
    "discounted UCB1": "UCB1",
}
"""Those that know that the state moves, and each one's twin that does not."""


def name(kind: str, probability: float) -> str:
    return f"{kind} p={probability:g}"


def settings(horizon: int) -> list[Setting]:
    return [
        Setting(
            name(kind, probability),
            Switching(PROBLEM, probability, kind),
            policies(probability, horizon),
        )
        for kind in KINDS
        for probability in PROBABILITIES
        if probability > 0 or kind == "markov"  # no switches: the two kinds are one
    ]


def policies(probability: float, horizon: int) -> Policies:
    """Those that know are told the switch probability. The cautious one is told at least one
    switch per run, as nobody can be sure that a state will stand still. Windows are as long as
    two stretches without a switch, and discounts remember as much: what Garivier & Moulines
    (2011) advise for long runs, 2 sqrt(n log n / switches), does worse in runs this short.
    """
    k, noise = PROBLEM.n_actions, PROBLEM.noise
    rounds = horizon if probability == 0 else min(horizon, round(2 / probability))
    factor = 1 - probability / 2
    ucb1 = UCB1(k, scale=noise)
    return {
        "UCB1": ucb1,
        "window UCB1": SlidingWindow(ucb1, rounds),
        "discounted UCB1": Discounted(ucb1, factor),
        "TS": TS(k, noise, prior_mean=0.5, prior_spread=(1 / 12) ** 0.5),
        "mUCB": partial(mUCB, horizon=horizon),
        "window mUCB": partial(_window, mUCB, rounds),
        "discounted mUCB": partial(_discounted, mUCB, factor),
        "mmUCB": partial(mmUCB, horizon=horizon),
        "window mmUCB": partial(_window, mmUCB, rounds),
        "discounted mmUCB": partial(_discounted, mmUCB, factor),
        "mTS": mTS,
        "Markov mTS": partial(_markov, mTS, probability),
        "Markov mTS, cautious": partial(_markov, mTS, max(probability, 1 / horizon)),
        "mmTS": mmTS,
        "Markov mmTS": partial(_markov, mmTS, probability),
    }


def _window(policy: Any, rounds: int, model: GaussianArms) -> SlidingWindow:
    return SlidingWindow(policy(model, horizon=rounds), rounds)


def _discounted(policy: Any, factor: float, model: GaussianArms) -> Discounted:
    return Discounted(policy(model), factor)


def _markov(policy: Any, probability: float, model: GaussianArms) -> Any:
    return policy(Markov.switching(model, probability, n_paths=8))
