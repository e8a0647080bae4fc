"""Switch probabilities, and every policy with and without a model of the switches."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

from latentbandits.environments import Switching, Synthetic
from latentbandits.experiments.sweep import Policies, Setting
from latentbandits.models import GaussianArms, Markov
from latentbandits.policies import mmTS, mTS
from latentbandits.policies.registry import PolicySpec
from latentbandits.simulation.makers import makers

PROBABILITIES = (0.0, 0.005, 0.02, 0.05)
KINDS: tuple[Literal["markov", "piecewise"], ...] = ("markov", "piecewise")
PROBLEM = Synthetic(model_noise=0.05)
HORIZON = 500
RUNS = 200

LONG_PROBLEM = Synthetic(model_noise=0.05, n_actions=3)
LONG_PROBABILITY = 0.002
LONGER = 10
"""Ten actions cannot be learned again in the 20 to 200 rounds between switches. Policies without a
model are therefore also played with three actions, as in Garivier & Moulines (2011), and with 500
rounds between switches, in runs of `LONGER` times as many rounds.
"""

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
"""Policies that model the switches, each with its counterpart that does not."""

ORDER = (
    "UCB1", "window UCB1", "discounted UCB1", "TS", "mUCB", "window mUCB", "discounted mUCB",
    "mmUCB", "window mmUCB", "discounted mmUCB", "mTS", "Markov mTS", "Markov mTS, cautious",
    "mmTS", "Markov mmTS",
)  # fmt: skip
"""The rows of the tables."""

_TOO_SLOW_FOR_LONG = ("mmTS", "Markov mmTS")  # and TS, which has no twin


def name(kind: str, probability: float) -> str:
    return f"{kind} p={probability:g}"


def settings(horizon: int) -> list[Setting]:
    return [
        Setting(
            name(kind, probability),
            Switching(PROBLEM, probability, kind),
            policies(PROBLEM, probability, horizon),
        )
        for kind in KINDS
        for probability in PROBABILITIES
        if probability > 0 or kind == "markov"  # without switches the two kinds are the same
    ]


def long_settings(horizon: int) -> list[Setting]:
    """Return the settings of the long problem for `horizon` rounds."""
    everyone = policies(LONG_PROBLEM, LONG_PROBABILITY, horizon)
    paired = {*KNOWING, *KNOWING.values()} - {*_TOO_SLOW_FOR_LONG}
    return [
        Setting(
            name(kind, LONG_PROBABILITY),
            Switching(LONG_PROBLEM, LONG_PROBABILITY, kind),
            {policy: maker for policy, maker in everyone.items() if policy in paired},
        )
        for kind in KINDS
    ]


def policies(problem: Synthetic, probability: float, horizon: int) -> Policies:
    """Return the policies of a setting.

    Markov policies are given the switch probability. Policies with a window or discount, and the
    cautious filter, assume at least one switch per run, because a policy cannot know that there are
    none. mUCB and mmUCB use log t instead of log n, as their windowed and discounted forms must:
    log n is larger and makes them keep a wrong state longer, which would look like a gain of
    forgetting.
    """
    expected = max(probability, 1 / horizon)
    plain = {name: PolicySpec(name) for name in ("UCB1", "TS", "mUCB", "mmUCB", "mTS", "mmTS")}
    forgetting = {
        f"{kind} {name}": form(name, alternatives, expected, horizon)
        for name, alternatives in (
            ("UCB1", problem.n_actions), ("mUCB", problem.n_states), ("mmUCB", problem.n_states),
        )
        for kind, form in (("window", _window), ("discounted", _discounted))
    }  # fmt: skip
    made = makers(plain | forgetting, reward_range=(0.0, 1.0))
    made |= {
        "Markov mTS": partial(_markov, mTS, probability),
        "Markov mTS, cautious": partial(_markov, mTS, expected),
        "Markov mmTS": partial(_markov, mmTS, probability),
    }
    return {name: made[name] for name in ORDER}


# The memory of windows and discounts. Garivier & Moulines (2011) advise lengths in proportion
# to 1 / sqrt(p): windows of 2 sqrt(log n / p) rounds, and discounts of 1 - sqrt(p) / 4, whose
# memory is 4 / sqrt(p). Their bounds ignore the number of alternatives, but each must be learned
# again. So the memory here is 4 or 8 / sqrt(p) for each action of UCB1, or state of mUCB and mmUCB.
# On other seeds than this experiment's, with 3, 5 and 10 actions and p from 0.0005 to 0.005, 4 was
# the best of 2, 4 and 8 for windows of UCB1, and 8 of 4, 8 and 16 for discounts.


def _window(policy: str, n_alternatives: int, probability: float, horizon: int) -> PolicySpec:
    rounds = min(horizon, round(4 * n_alternatives / math.sqrt(probability)))
    return PolicySpec("SlidingWindow", {"policy": policy, "rounds": rounds})


def _discounted(policy: str, n_alternatives: int, probability: float, horizon: int) -> PolicySpec:
    factor = 1 - math.sqrt(probability) / (8 * n_alternatives)
    return PolicySpec("Discounted", {"policy": policy, "factor": factor})


def _markov(policy: Any, probability: float, model: GaussianArms) -> Any:
    return policy(Markov.switching(model, probability, n_paths=8))
