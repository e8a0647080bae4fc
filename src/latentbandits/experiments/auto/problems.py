"""Problems on which the tuned policy is compared with its candidates.

Each problem has an environment that is played, and one for `tune`, whose users are drawn from the
model that policies are given, never from the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from latentbandits.environments.from_model import UsersOfModel
from latentbandits.environments.protocol import Environment, Instances, Round
from latentbandits.environments.synthetic import Synthetic
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.simulation.tune import ESTIMATES

_CONTEXTS = 2000  # contexts from which tune draws, in problems with features


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem: `played` is the truth, `tuned` draws users for tune, `model` has their kind."""

    played: Environment
    tuned: Environment
    model: Any
    n_actions: int
    horizon: int


@dataclass(frozen=True, eq=False)
class UsersOfInstances:
    """Users drawn from the models that an environment gives to policies, one model per run."""

    environment: Environment

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> Instances:
        model: Any = self.environment.start(n_runs, horizon, rng).model
        return UsersOfModel(model, estimates=ESTIMATES).start(n_runs, horizon, rng)


def synthetic(sigma0: float, horizon: int, seed: int) -> Problem:
    """Return the paper's problem: a fresh model for every run."""
    return _fresh(Synthetic(model_noise=sigma0), horizon)


def _fresh(environment: Environment, horizon: int) -> Problem:
    model: Any = environment.start(2, 1, np.random.default_rng(0)).model
    return Problem(environment, UsersOfInstances(environment), model, model.n_actions, horizon)


def family(name: str, horizon: int, seed: int) -> Problem:
    """Return the problem of one reward family of `reproduce families`."""
    from latentbandits.experiments.families.problems import PROBLEMS

    environment = PROBLEMS[name]
    rng = np.random.default_rng([seed, 1])
    runs = environment.start(_CONTEXTS, 1, rng)
    model: Any = runs.model
    if model.n_features is None:
        return _fresh(environment, horizon)
    contexts = runs.round(0, rng).context
    assert contexts is not None
    return Problem(environment, UsersOfModel(model, contexts), model, contexts.shape[1], horizon)


def movielens(folder: str | None, horizon: int, seed: int) -> Problem:
    """Return the paper's MovieLens problem: one split of the ratings."""
    from latentbandits.experiments.movielens.data import find_folder, load
    from latentbandits.experiments.movielens.filtering import keep_active
    from latentbandits.experiments.movielens.settings import Settings
    from latentbandits.experiments.movielens.split import learn

    settings = replace(Settings(), seed=seed)
    data = keep_active(load(find_folder(folder)), settings.more_than)
    environment = learn(data, settings, 0).environment
    rng = np.random.default_rng([seed, 2])
    contexts = environment.features[environment.draw(_CONTEXTS, rng)]
    users = UsersOfModel(environment.model, contexts)
    return Problem(environment, users, environment.model, contexts.shape[1], horizon)


N_ITEMS, N_USERS, IMPRESSIONS = 20, 4000, 60


@dataclass(frozen=True, eq=False)
class NewClickers:
    """New users of the click problem; policies are given a learned model."""

    rates: FloatArray  # (n_states, n_items)
    model: Any

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> ClickRuns:
        return ClickRuns(self, rng.integers(len(self.rates), size=n_runs))


@dataclass(frozen=True, eq=False)
class ClickRuns:
    environment: NewClickers
    state: IntArray

    @property
    def model(self) -> Any:
        return self.environment.model

    def round(self, t: int, rng: np.random.Generator) -> Round:
        means = self.environment.rates[self.state]
        return Round(None, means, (rng.random(means.shape) < means).astype(np.float64))


def clicks(horizon: int, seed: int) -> Problem:
    """Return rare clicks of 3 kinds of users on 20 items, learned from 4,000 logged users.

    The generator is described in the project's notes on learning, section 3.
    """
    import polars

    from latentbandits.learning import fit

    rng = np.random.default_rng(3 + seed)
    rates = np.clip(rng.gamma(1, 0.02, (3, N_ITEMS)), 0.002, 0.25)
    state = rng.integers(0, 3, N_USERS)
    item = rng.integers(N_ITEMS, size=(N_USERS, IMPRESSIONS))
    clicked = rng.random(item.shape) < rates[state[:, None], item]
    log = polars.DataFrame(
        {
            "user": np.repeat(np.arange(N_USERS), IMPRESSIONS).astype(str),
            "action": item.ravel().astype(str),
            "reward": clicked.ravel().astype(np.float64),
        }
    )
    result = fit(
        log, user="user", action="action", reward="reward", rewards="bernoulli", kind="arms",
        bootstrap=0,
    )  # fmt: skip
    model = result.model
    catalogue = result.catalogue
    order = np.array([int(name) for name in catalogue.ids])
    return Problem(
        NewClickers(rates[:, order], model), UsersOfModel(model), model, N_ITEMS, horizon
    )


def problems(data: str | None) -> Mapping[str, Callable[[int], Problem]]:
    """Return, by name, functions that make each problem from a seed."""
    from latentbandits.experiments.families.problems import PROBLEMS

    return {
        **{
            f"sigma0={sigma0:g}, {horizon} rounds": partial(synthetic, sigma0, horizon)
            for sigma0 in (0.05, 0.2)
            for horizon in (200, 500)
        },
        "movielens-1m": partial(movielens, data, 200),
        "clicks": partial(clicks, 100),
        **{f"family {name}": partial(family, name, 100) for name in PROBLEMS},
    }
