"""The paper's settings, and every policy in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from latentbandits.environments import Synthetic
from latentbandits.policies import (
    EXP4,
    TS,
    UCB1,
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

MODEL_NOISES = (0.05, 0.2)
HORIZON = 500
RUNS = 1000


@dataclass(frozen=True)
class Setting:
    """One noise level of the model that the policies are told."""

    sigma0: float

    @property
    def name(self) -> str:
        return f"sigma0={self.sigma0:g}"

    @property
    def environment(self) -> Synthetic:
        return Synthetic(model_noise=self.sigma0)


SETTINGS = tuple(Setting(sigma0) for sigma0 in MODEL_NOISES)


def policies(horizon: int) -> Mapping[str, AnyPolicy | PolicyMaker]:
    """Every policy of the paper's figure, and ours beyond it; TS knows how means are drawn."""
    environment = SETTINGS[0].environment
    k, noise = environment.n_actions, environment.noise
    return {
        "UCB1": UCB1(k),
        "UCB1(scale=0.5)": UCB1(k, scale=noise),
        "TS": TS(k, noise, prior_mean=0.5, prior_spread=(1 / 12) ** 0.5),
        "EXP4": partial(EXP4, horizon=horizon),
        "mUCB": partial(mUCB, horizon=horizon),
        "mmUCB": partial(mmUCB, horizon=horizon),
        "mTS": mTS,
        "mmTS": mmTS,
        "mIDS": mIDS,
        "mmIDS": mmIDS,
        "mmGreedy": mmGreedy,
    }
