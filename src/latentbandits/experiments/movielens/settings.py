"""The settings of the paper's MovieLens experiment, and its policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latentbandits.environments import GroupedRatings
from latentbandits.policies.derived import average_item_slack
from latentbandits.policies.registry import PolicySpec
from latentbandits.simulation.makers import makers
from latentbandits.simulation.simulate import PolicyMaker

SETTING = "movielens-1m"
RATING_RANGE = (1.0, 5.0)
NOISE = 0.5
ACTIONS = 20


@dataclass(frozen=True)
class Settings:
    """The settings of a run: the paper's, except `users` and settings that it does not state."""

    users: int = 1000  # 100 in the paper
    horizon: int = 500
    rank: int = 20
    states: int = 5
    reg: float = 1.0  # not stated in the paper
    splits: int = 1
    more_than: int = 200
    seed: int = 0


POLICIES = (
    "LinUCB", "LinTS", "EXP4", "mUCB", "mmUCB", "mTS", "mmTS", "mIDS", "mmIDS", "mmGreedy",
)  # fmt: skip
"""Every policy of the paper's figure, and ours beyond it.

LinUCB and LinTS use the same train vectors, with only the prior N(0, I).
"""


def policies(
    names: Sequence[str], environment: GroupedRatings, horizon: int
) -> dict[str, PolicyMaker]:
    """Return the policies of these names in one split of the data."""
    facts = {"horizon": horizon, "reward_range": RATING_RANGE, "noise": environment.noise}
    texts = {name: PolicySpec(name) for name in names}
    if "mmUCB" in texts:
        texts["mmUCB"] = PolicySpec("mmUCB", {"slack": session_slack(environment)})
    return makers(texts, **facts)


def session_slack(environment: GroupedRatings) -> float:
    """Return the slack of mmUCB for the average item of a round (see `average_item_slack`)."""
    shares = environment.groups / environment.sizes  # each group's share of items
    shown = shares.mean(axis=1) @ environment.features
    return average_item_slack(shown, environment.model.covariances)
