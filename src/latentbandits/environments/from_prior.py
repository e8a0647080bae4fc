"""Problems drawn from a model's own prior, so that its uncertainty is calibrated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.environments.protocol import Round


@dataclass(frozen=True)
class FromPrior:
    """Each run draws its state uniformly, and its parameters from the prior of that state.

    Args:
        draw_model: `draw_model(n_runs, rng)` returns a `Generative` model, either one that all
            runs share or one with an instance for each run.
        n_actions: of a model with features: every round has so many actions with fresh features,
            of length about one.

    >>> from latentbandits.models import BernoulliArms
    >>> environment = FromPrior(lambda n, rng: BernoulliArms(rng.random((n, 2, 3)), 1.0))
    >>> runs = environment.start(4, horizon=10, rng=np.random.default_rng(0))
    >>> runs.round(0, np.random.default_rng(0)).rewards.shape
    (4, 3)
    """

    draw_model: Callable[[int, np.random.Generator], Any]
    n_actions: int = 10

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> PriorInstances:
        model = self.draw_model(n_runs, rng)
        state = rng.integers(model.n_states, size=n_runs)
        return PriorInstances(model, model.draw_theta(state, rng), n_runs, self.n_actions)


@dataclass(frozen=True, eq=False)
class PriorInstances:
    """Runs with the parameters of their own state."""

    model: Any
    theta: Any  # parameters of every run
    n_runs: int
    n_actions: int

    def round(self, t: int, rng: np.random.Generator) -> Round:
        context = None
        if self.model.n_features is not None:
            shape = (self.n_runs, self.n_actions, self.model.n_features)
            context = rng.standard_normal(shape) / np.sqrt(self.model.n_features)
        means = self.model.mean_rewards(self.theta, context)
        return Round(context, means, self.model.draw_rewards(self.theta, context, rng))
