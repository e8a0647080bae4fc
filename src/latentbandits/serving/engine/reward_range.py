"""The default range of a service's rewards: from the model's family and data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from latentbandits.models.support import REALS

_NOISES = 5.0  # rewards may exceed the data by at least this many standard deviations


class RewardRange(NamedTuple):
    """The least and the greatest reward; infinite where there is no limit."""

    low: float = -math.inf
    high: float = math.inf


UNLIMITED = RewardRange()


def reward_range(model: Any, notes: Mapping[str, Any]) -> RewardRange:
    """Return the range of a model's rewards.

    It is that of the family: 0 to 1 for clicks, 0 and above for counts, the values of categories.
    Where the family takes every number (Gaussian rewards), it is the range of the data that the
    model was learned from, with as much room again on either side, and at least five standard
    deviations of the noise. A model without such data has no limits.

    >>> from latentbandits import GaussianArms
    >>> reward_range(GaussianArms([[0.5]], noise=0.1), {"reward_range": [0.0, 2.0]})
    RewardRange(low=-2.0, high=4.0)
    """
    support = getattr(model, "support", REALS)
    bounds = support.bounds
    if bounds is not None:
        return RewardRange(*map(float, bounds))
    if support is not REALS:
        return RewardRange(float(getattr(support, "low", 0.0)))
    noted_range = notes.get("reward_range")
    if noted_range is None:
        return UNLIMITED
    low, high = map(float, noted_range)
    room = max(high - low, _NOISES * float(model.noise))
    return RewardRange(low - room, high + room)
