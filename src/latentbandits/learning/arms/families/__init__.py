"""Reward families: each is a plug-in of the one variational mixture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from latentbandits.learning.arms.families.bernoulli import Bernoulli
from latentbandits.learning.arms.families.categorical import Categorical
from latentbandits.learning.arms.families.exponential import Exponential
from latentbandits.learning.arms.families.family import Family
from latentbandits.learning.arms.families.gaussian import Gaussian
from latentbandits.learning.arms.families.poisson import Poisson
from latentbandits.models.checks import FloatArray

Rewards = Literal["gaussian", "bernoulli", "poisson", "exponential", "categorical"]
"""Names of the reward families."""

REWARDS: tuple[Rewards, ...] = get_args(Rewards)

_MAKERS: Mapping[Rewards, type[Family]] = {
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
    "exponential": Exponential,
    "categorical": Categorical,
}


def make_family(name: Rewards, rewards: FloatArray) -> Family:
    """Return the family `name`, set up for a log's `rewards`; LogError if they cannot be its."""
    return _MAKERS[name].of(rewards)


__all__ = ["REWARDS", "Bernoulli", "Categorical", "Exponential", "Family", "Gaussian", "Poisson",
           "Rewards", "make_family"]  # fmt: skip
