"""The paper's settings, and every policy in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from latentbandits.environments import GroupedRatings
from latentbandits.policies import (
    EXP4,
    LinTS,
    LinUCB,
    mIDS,
    mmGreedy,
    mmIDS,
    mmTS,
    mmUCB,
    mTS,
    mUCB,
)
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.simulation.simulate import PolicyMaker

SETTING = "movielens-1m"
RATING_RANGE = (1.0, 5.0)
NOISE = 0.5
ACTIONS = 20


@dataclass(frozen=True)
class Settings:
    """What one run of the experiment depends on; the paper's where it says them, save `users`."""

    users: int = 1000  # the paper has 100
    horizon: int = 500
    rank: int = 20
    states: int = 5
    reg: float = 1.0  # the paper does not say
    splits: int = 1
    more_than: int = 200
    seed: int = 0


POLICIES = (
    "LinUCB", "LinTS", "EXP4", "mUCB", "mmUCB", "mTS", "mmTS", "mIDS", "mmIDS", "mmGreedy",
)  # fmt: skip


def policies(environment: GroupedRatings, horizon: int) -> Mapping[str, AnyPolicy | PolicyMaker]:
    """Every policy of the paper's figure, and ours beyond it.

    LinUCB and LinTS see the same train vectors, and have nothing but the prior N(0, I).
    """
    d = environment.model.n_features
    return {
        "LinUCB": LinUCB(d),
        "LinTS": LinTS(d, noise=environment.noise),
        "EXP4": partial(EXP4, reward_range=RATING_RANGE, horizon=horizon),
        "mUCB": partial(mUCB, horizon=horizon),
        "mmUCB": partial(mmUCB, slack=session_slack(environment), horizon=horizon),
        "mTS": mTS,
        "mmTS": mmTS,
        "mIDS": mIDS,
        "mmIDS": mmIDS,
        "mmGreedy": mmGreedy,
    }


def session_slack(environment: GroupedRatings) -> float:
    """Epsilon of mmUCB: how far a user's ratings lie, on average, from those of the own state.

    mmUCB holds against a state the sum over rounds of (model's mean - epsilon - reward). For a
    user theta of state s that sum grows by x'(weights[s] - theta) a round, so what matters is the
    deviation of the average item, sqrt(x' Sigma_s x) with x the mean vector of the items shown,
    here of the state in which it is largest. A bound for the worst single item would be several
    times as much, and forgive states that the session's average speaks against.
    """
    shares = environment.groups / environment.sizes  # of each group's items
    shown = (shares.mean(axis=1)) @ environment.features
    variances = [float(shown @ c @ shown) for c in environment.model.covariances]
    return math.sqrt(max(variances))
