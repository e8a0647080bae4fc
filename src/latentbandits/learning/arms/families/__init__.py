"""Reward families; each is a plug-in of the same variational mixture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, get_args

import numpy as np

from latentbandits.learning.arms.families.bernoulli import Bernoulli
from latentbandits.learning.arms.families.categorical import Categorical
from latentbandits.learning.arms.families.exponential import Exponential
from latentbandits.learning.arms.families.family import Family
from latentbandits.learning.arms.families.gaussian import Gaussian
from latentbandits.learning.arms.families.poisson import Poisson
from latentbandits.learning.logs.formats import LogError
from latentbandits.models.checks import FloatArray, positive_number

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


def family_class(name: Rewards) -> type[Family]:
    """Return the class of a reward family."""
    return _MAKERS[name]


class Described(Protocol):
    """The facts about a log's rewards that a family needs (`log_summary.RewardSummary`)."""

    @property
    def values(self) -> FloatArray:
        """Distinct rewards: all, or many of them with one outside the support of each family."""

    @property
    def mean(self) -> float: ...

    @property
    def deviation(self) -> float: ...


def make_family(
    name: Rewards, rewards: FloatArray | Described, noise: float | None = None
) -> Family:
    """Return the family `name`, set up for a log's `rewards`.

    Raise LogError if they are outside its support. `noise` fixes the standard deviation of
    Gaussian rewards.
    """
    if isinstance(rewards, np.ndarray):
        family = _MAKERS[name].for_rewards(rewards)
    elif name == "gaussian":
        family = Gaussian(shift=rewards.mean, scale=rewards.deviation or 1.0)
    else:
        family = _MAKERS[name].for_rewards(rewards.values)
    if noise is None:
        return family
    if not isinstance(family, Gaussian):
        raise LogError(f"noise is for gaussian rewards; these are {name}")
    return family.with_noise(positive_number("noise", noise))


__all__ = ["REWARDS", "Bernoulli", "Categorical", "Exponential", "Family", "Gaussian", "Poisson",
           "Rewards", "make_family"]  # fmt: skip
