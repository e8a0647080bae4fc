"""Policies by name, and the propensities of their decisions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray
from latentbandits.policies import Decision
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import Inputs, build, find, parse

PropensityMode = Literal["counted", "policy", "none"]


def make_policy(text: str, model: Any, items: FloatArray | None = None) -> AnyPolicy:
    """Return the policy of this text on `model`; ValueError where they do not go together.

    `items` are the features of the catalogue's actions, `(n_items, n_features)`.
    """
    if not find(parse(text).name).can_be_served:
        raise ValueError(
            f"{text} learns across users and remembers the order of rewards, so it is for "
            "simulation: of these policies HierTS and HierUCB are served, whose beliefs are sums"
        )
    return build(text, Inputs(model, items=items))


class Propensities:
    """Computes the probability of a chosen action.

    counted: in closed form where there is one, else by `draws` more decisions of the same belief.
    policy: as the policy itself does it, which for mmTS without features is an integral, exact to
    1e-6 and milliseconds long. none: not at all.
    """

    def __init__(self, mode: PropensityMode, draws: int) -> None:
        self._mode = mode
        self._draws = draws

    def decide(
        self,
        policy: AnyPolicy,
        belief: Any,
        context: FloatArray | None,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> Decision:
        """Decide for every session of the belief, with propensities of the mode's kind."""
        if self._mode == "counted":
            return policy.decide_counting(belief, context, rng, self._draws, eligible=eligible)
        return policy.decide(
            belief, context, rng, eligible=eligible, propensity=self._mode != "none"
        )
