"""Models with errors of size sigma0 in their means, and models that lack one of the states."""

from __future__ import annotations

from latentbandits.environments import MissingStates, Synthetic
from latentbandits.experiments.sweep import Policies, Setting
from latentbandits.simulation.makers import makers

MODEL_NOISES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
MISSING = (0, 1)
HORIZON = 500
RUNS = 1000
CATCH_ALL = "mmTS, catch-all"


def name(sigma0: float, n_missing: int) -> str:
    known = Synthetic(sigma0).n_states - n_missing
    return f"sigma0={sigma0:g}" + (f", {known} of {known + n_missing} states" if n_missing else "")


def settings(horizon: int) -> list[Setting]:
    return [
        Setting(
            name(sigma0, n_missing), MissingStates(Synthetic(sigma0), n_missing), policies(horizon)
        )
        for n_missing in MISSING
        for sigma0 in MODEL_NOISES
    ]


def policies(horizon: int) -> Policies:
    """Return the policies of every setting; TS is given the distribution of the means."""
    texts = {name: name for name in ("TS", "mUCB", "mmUCB", "mTS", "mIDS", "mmTS", "mmIDS")}
    texts[CATCH_ALL] = "mmTS(catch_all=True)"
    return makers(texts, horizon=horizon, reward_range=(0.0, 1.0))
