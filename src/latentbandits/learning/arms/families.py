"""The reward family of a log: found by name, and set up for the log's rewards."""

from __future__ import annotations

import numpy as np

from latentbandits.learning.logs.formats import LogError
from latentbandits.models import registry
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.arms.learnable import Learnable, RewardFacts
from latentbandits.models.checks import FloatArray, positive_number

Rewards = str
"""The name of a reward family (`models.registry.reward_families`)."""

ArmsModel = GaussianArms | ConjugateArms


def make_family(
    name: Rewards, rewards: FloatArray | RewardFacts, noise: float | None = None
) -> Learnable:
    """Return the family `name`, set up for a log's `rewards`.

    Raise LogError if they are outside its support. `noise` fixes the standard deviation of
    Gaussian rewards.
    """
    kind = registry.reward_family(name)
    try:
        if isinstance(rewards, np.ndarray):
            family = kind.for_rewards(rewards)
        else:
            family = kind.for_facts(rewards)
        return family if noise is None else family.with_noise(positive_number("noise", noise))
    except ValueError as error:
        raise LogError(str(error)) from error
