"""Users drawn from a model's own prior: a state, and then parameters of that state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.models.checks import FloatArray, positive_count
from latentbandits.models.protocol import Generative


@dataclass(frozen=True, eq=False)
class UsersOfModel:
    """Each run is a user: state s of P1(s), theta of P1(theta | s), rewards of p(r | a, x, theta).

    `items` are the features of the catalogue `(n_items, n_features)` of a model that takes a
    context; every round offers `offered` of them, drawn uniformly and with replacement. A model of
    arms offers all actions.

    >>> from latentbandits.models.arms.gaussian import GaussianArms
    >>> users = UsersOfModel(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
    >>> rng = np.random.default_rng(0)
    >>> users.start(3, horizon=10, rng=rng).round(0, rng).rewards.shape
    (3, 2)
    """

    model: Any  # Generative, one that all sessions share
    items: FloatArray | None = None
    offered: int = 10

    def __post_init__(self) -> None:
        positive_count("offered", self.offered)
        model = self.model
        if not isinstance(model, Generative) or getattr(model, "n_sessions", None) is not None:
            raise ValueError(
                "users can be drawn from a model with draw_theta and draw_rewards that all "
                f"sessions share; got a {type(self.model).__name__}"
            )
        if getattr(model, "n_actions", None) is None and self.items is None:
            raise ValueError(
                "this model takes a context: give the features of the items that are offered"
            )

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> UserInstances:
        prior = np.exp(self.model.log_state_prior[0])
        state = rng.choice(self.model.n_states, size=n_runs, p=prior / prior.sum())
        return UserInstances(self, self.model.draw_theta(state, rng), n_runs)


@dataclass(frozen=True, eq=False)
class UserInstances:
    """Runs with the parameters of their user."""

    environment: UsersOfModel
    theta: Any  # of every run
    n_runs: int

    @property
    def model(self) -> Any:
        return self.environment.model

    def round(self, t: int, rng: np.random.Generator) -> Round:
        context = None
        if self.model.n_actions is None:
            items = self.environment.items
            assert items is not None
            context = items[rng.integers(len(items), size=(self.n_runs, self.environment.offered))]
        means = self.model.mean_rewards(self.theta, context)
        return Round(context, means, self.model.draw_rewards(self.theta, context, rng))
