"""Users drawn from a model's own prior: a state, and then parameters of that state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.models.checks import FloatArray, IntArray, positive_count
from latentbandits.models.protocol import Context, Model

_GENERATIVE = ("draw_theta", "mean_rewards", "draw_rewards")


@dataclass(frozen=True, eq=False)
class UsersOfModel:
    """Each run is a user: state s of P1(s), theta of P1(theta | s), rewards of p(r | a, x, theta).

    Policies are told the same model. If its state moves, so do the users', and each of them has
    parameters for every state.

    Args:
        model: one that all sessions share. If it lacks the methods of `Generative`, and has a
            fixed set of actions, rewards are N(mean, noise^2) around means that it draws.
        items: features of the catalogue `(n_items, n_features)`, for a model that takes a context.
        offered: items of a round, drawn uniformly and with replacement; a model of arms offers
            all actions.

    >>> from latentbandits.models.arms.gaussian import GaussianArms
    >>> users = UsersOfModel(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
    >>> rng = np.random.default_rng(0)
    >>> users.start(3, horizon=10, rng=rng).round(0, rng).rewards.shape
    (3, 2)
    """

    model: Any
    items: FloatArray | None = None
    offered: int = 10

    def __post_init__(self) -> None:
        positive_count("offered", self.offered)
        model = self.model
        n_actions = getattr(model, "n_actions", None)
        drawn = hasattr(model, "sample_rewards") and n_actions is not None
        if getattr(model, "n_sessions", None) is not None or not (self.is_generative or drawn):
            raise ValueError(
                "users can be drawn from a model with draw_theta and draw_rewards that all "
                f"sessions share; got a {type(self.model).__name__}"
            )
        if n_actions is None and self.items is None:
            raise ValueError(
                "this model takes a context: give the features of the items that are offered"
            )

    @property
    def is_generative(self) -> bool:
        """Whether the model draws rewards itself; otherwise they are Gaussian around means."""
        return _generative(self.model) is not None

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> UserInstances:
        prior = np.exp(self.model.log_state_prior[0])
        state = rng.choice(self.model.n_states, size=n_runs, p=prior / prior.sum())
        source = _generative(self.model) or _GaussianAroundMeans(self.model)
        if self.model.transition is None:
            return UserInstances(self, source, [source.draw_theta(state, rng)], state)
        every = (np.full(n_runs, s) for s in range(self.model.n_states))
        return UserInstances(self, source, [source.draw_theta(s, rng) for s in every], state)


def _generative(model: Any) -> Any:
    """The model, or the one that it wraps (`Markov`), that draws users; None if there is none."""
    while model is not None and not all(hasattr(model, name) for name in _GENERATIVE):
        model = getattr(model, "model", None)
    return model


class UserInstances:
    """Runs with the parameters of their user; the state of each moves if the model's does."""

    def __init__(
        self, environment: UsersOfModel, source: Any, thetas: list[Any], state: IntArray
    ) -> None:
        self.model = environment.model
        self.state = state  # (n_runs,)
        self._environment = environment
        self._source = source
        self._thetas = thetas  # of every run: in its own state, or in each state

    def round(self, t: int, rng: np.random.Generator) -> Round:
        if t > 0 and self.model.transition is not None:
            upper = self.model.transition[self.state].cumsum(axis=1)
            upper[:, -1] = np.inf  # whatever the rounding of the sum
            self.state = (rng.random((len(upper), 1)) < upper).argmax(axis=1)
        context = self._context(rng)
        means = [self._source.mean_rewards(theta, context) for theta in self._thetas]
        rewards = [self._source.draw_rewards(theta, context, rng) for theta in self._thetas]
        return Round(context, self._current(means), self._current(rewards))

    def _context(self, rng: np.random.Generator) -> Context:
        items = self._environment.items
        if self.model.n_actions is not None or items is None:
            return None
        return items[rng.integers(len(items), size=(len(self.state), self._environment.offered))]

    def _current(self, arrays: list[FloatArray]) -> FloatArray:
        """Each run's row of the array of its current state."""
        if len(arrays) == 1:
            return arrays[0]
        current: FloatArray = np.stack(arrays)[self.state, np.arange(len(self.state))]
        return current


@dataclass(frozen=True, eq=False)
class _GaussianAroundMeans:
    """Means from the model's `sample_rewards`, rewards N(mean, noise^2)."""

    model: Model

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> FloatArray:
        prior = self.model.parameters(len(state))
        return self.model.sample_rewards(prior, None, state[:, None], rng)[:, 0]

    def mean_rewards(self, theta: FloatArray, context: Context) -> FloatArray:
        return theta

    def draw_rewards(
        self, theta: FloatArray, context: Context, rng: np.random.Generator
    ) -> FloatArray:
        return theta + self.model.noise * rng.standard_normal(theta.shape)
