"""Problems drawn from a model's own prior: where the model is right about how unsure it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.protocol import Model


@dataclass(frozen=True)
class ArmsFromPrior:
    """A prior for every run from `draw_model(n_runs, rng)`; from it the parameters; a state.

    >>> from latentbandits.models import BernoulliArms
    >>> environment = ArmsFromPrior(lambda n, rng: BernoulliArms(rng.random((n, 2, 3)), 1.0))
    >>> runs = environment.start(4, horizon=10, rng=np.random.default_rng(0))
    >>> runs.round(0, np.random.default_rng(0)).rewards.shape
    (4, 3)
    """

    draw_model: Callable[[int, np.random.Generator], ConjugateArms]

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> ArmsInstances:
        model = self.draw_model(n_runs, rng)
        state = rng.integers(model.n_states, size=n_runs)
        prior = model.select(np.arange(n_runs), state)
        return ArmsInstances(model, model.sample(prior.prior_hyperparameters[:, 0], rng))


@dataclass(frozen=True, eq=False)
class ArmsInstances:
    """Runs with the parameters of their own state."""

    model: ConjugateArms
    theta: Any  # of every run and action

    def round(self, t: int, rng: np.random.Generator) -> Round:
        means = self.model.mean_reward(self.theta)
        return Round(None, means, self.model.draw(self.theta, rng))


class LinearTruth(Protocol):
    """Weights of every run, from the prior of its state, and rewards around their products."""

    def draw(self, state: IntArray, rng: np.random.Generator) -> Any: ...

    def means(self, theta: Any, context: FloatArray) -> FloatArray: ...

    def rewards(self, theta: Any, means: FloatArray, rng: np.random.Generator) -> FloatArray: ...


@dataclass(frozen=True)
class LinearFromPrior:
    """A `model` with features that all runs share; each run draws its state and its weights.

    Every round has fresh features, of length about one.
    """

    model: Model
    truth: LinearTruth
    n_actions: int
    n_features: int

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> LinearInstances:
        state = rng.integers(self.model.n_states, size=n_runs)
        return LinearInstances(self, self.truth.draw(state, rng), n_runs)


@dataclass(frozen=True, eq=False)
class LinearInstances:
    """Runs with the weights of their own state."""

    environment: LinearFromPrior
    theta: Any
    n_runs: int

    @property
    def model(self) -> Model:
        return self.environment.model

    def round(self, t: int, rng: np.random.Generator) -> Round:
        world = self.environment
        shape = (self.n_runs, world.n_actions, world.n_features)
        context = rng.standard_normal(shape) / np.sqrt(world.n_features)
        means = world.truth.means(self.theta, context)
        return Round(context, means, world.truth.rewards(self.theta, means, rng))
