"""The settings of the paper's synthetic experiment, and its policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentbandits.environments import Synthetic
from latentbandits.options import choose
from latentbandits.simulation.makers import makers
from latentbandits.simulation.simulate import PolicyMaker

MODEL_NOISES = (0.05, 0.2)
HORIZON = 500
RUNS = 1000


@dataclass(frozen=True)
class Setting:
    """One noise level of the model that the policies are given."""

    sigma0: float

    @property
    def name(self) -> str:
        return f"sigma0={self.sigma0:g}"

    @property
    def environment(self) -> Synthetic:
        return Synthetic(model_noise=self.sigma0)


SETTINGS = tuple(Setting(sigma0) for sigma0 in MODEL_NOISES)


REWARD_RANGE = (0.0, 1.0)
"""The range of the means, which are drawn uniformly; TS uses it as prior."""

POLICIES: Mapping[str, str] = {
    "UCB1": "UCB1(scale=1)",  # the classic scale for rewards in [0, 1]
    "UCB1(scale=0.5)": "UCB1(scale=0.5)",  # the standard deviation of a reward
} | {
    name: name
    for name in ("TS", "EXP4", "mUCB", "mmUCB", "mTS", "mmTS", "mIDS", "mmIDS", "mmGreedy")
}
"""Every policy of the paper's figure, and ours beyond it, by the name in tables."""


def policies(names: Sequence[str] | None, horizon: int) -> dict[str, PolicyMaker]:
    """Return the policies of these names, or all of them."""
    chosen = {name: POLICIES[name] for name in choose("policy", names, POLICIES)}
    return makers(chosen, horizon=horizon, reward_range=REWARD_RANGE)
