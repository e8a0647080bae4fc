"""Plays policies with a learned model, and reports as every experiment does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from latentbandits.environments import KnownUsers
from latentbandits.experiments.fitted.users import Users
from latentbandits.experiments.movielens.settings import session_slack
from latentbandits.policies import (
    EXP4,
    TS,
    UCB1,
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
from latentbandits.report.progress import ProgressBar
from latentbandits.report.report import Report
from latentbandits.simulation import simulate
from latentbandits.simulation.simulate import PolicyMaker

LATENT = ("EXP4", "mUCB", "mmUCB", "mTS", "mmTS", "mIDS", "mmIDS", "mmGreedy")
POLICIES: Mapping[str, tuple[str, ...]] = {
    "GaussianArms": ("UCB1", "TS", *LATENT),
    "LinearGaussian": ("LinUCB", "LinTS", *LATENT),
}
"""By the kind of model: the classic policies, which see no model, then those that do."""


@dataclass(frozen=True)
class Settings:
    model: str
    users: str | None  # the log they come from; None: drawn from the model
    runs: int = 1000
    horizon: int = 200
    offered: int = 20
    seed: int = 0


def play(
    users: Users,
    settings: Settings,
    policies: Sequence[str],
    reward_range: tuple[float, float],
    executor: Executor | None,
    progress: ProgressBar,
) -> Report:
    from latentbandits.experiments.movielens.figure import draw
    from latentbandits.report.terminal import policy_table

    started = time.perf_counter()
    available = _policies(users, settings.horizon, reward_range)
    progress.start("simulate", settings.runs)
    results = simulate(
        {name: available[name] for name in policies},
        users,
        n_runs=settings.runs,
        horizon=settings.horizon,
        seed=settings.seed,
        executor=executor,
        progress=progress.advance,
    )
    setting = (
        "users of the model" if settings.users is None else f"users of {Path(settings.users).name}"
    )
    title = f"{Path(settings.model).name}, {setting}: {settings.runs} runs"
    rows = [result.row() | {"setting": setting} for result in results.values()]
    return Report(
        experiment="simulate",
        settings=asdict(settings) | {"policies": list(policies)},
        seconds=time.perf_counter() - started,
        policies=rows,
        tables=[policy_table(title, rows)],
        figures={"simulate": draw(results, f"{title}; one standard error", "mean reward")},
        frames={"curves": results.curves()},
    )


def _policies(
    users: Users, horizon: int, reward_range: tuple[float, float]
) -> dict[str, AnyPolicy | PolicyMaker | Any]:
    """Classic policies know what the rewards' range and noise are, and nothing of the states."""
    low, high = reward_range
    shared: dict[str, Any] = {
        "EXP4": partial(EXP4, reward_range=reward_range, horizon=horizon),
        "mUCB": partial(mUCB, horizon=horizon),
        "mTS": mTS,
        "mmTS": mmTS,
        "mIDS": mIDS,
        "mmIDS": mmIDS,
        "mmGreedy": mmGreedy,
    }
    if isinstance(users, KnownUsers):
        n_actions, noise = users.model.n_actions, users.noise
        middle, width = (low + high) / 2, (high - low) / 12**0.5
        return shared | {
            "UCB1": UCB1(n_actions, scale=noise),
            "TS": TS(n_actions, noise, prior_mean=middle, prior_spread=width),
            "mmUCB": partial(mmUCB, horizon=horizon),
        }
    n_features = users.model.n_features
    return shared | {
        "LinUCB": LinUCB(n_features),
        "LinTS": LinTS(n_features, noise=users.noise),
        "mmUCB": partial(mmUCB, slack=session_slack(users), horizon=horizon),
    }
