"""Models whose parameters are certain, with the methods that the mm-policies call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import BoolArray, FloatArray, IntArray, session_count
from latentbandits.models.numerics.arrays import shares_best
from latentbandits.models.numerics.laws import Component, Points, Support
from latentbandits.models.protocol import (
    Context,
    Extendable,
    KnownModel,
    Model,
    OptionalMembers,
    with_defaults,
)
from latentbandits.models.shown import ShownModel

# Delegation to a model inside another.


class Wrapping(OptionalMembers, ShownModel):
    """Base class of a model that has the states, actions and mean rewards of `model`."""

    model: KnownModel

    @property
    def n_states(self) -> int:
        return self.model.n_states

    @property
    def n_actions(self) -> int | None:
        return self.model.n_actions

    @property
    def n_features(self) -> int | None:
        return self.model.n_features

    @property
    def n_sessions(self) -> int | None:
        return self.model.n_sessions

    @property
    def support(self) -> Support:
        """The rewards that the wrapped model allows."""
        return with_defaults(self.model).support

    @property
    def inner_models(self) -> tuple[KnownModel, ...]:
        return (self.model,)

    @property
    def noise(self) -> float:
        return self.model.noise

    @property
    def log_state_prior(self) -> FloatArray:
        return self.model.log_state_prior

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        return self.model.check_context(context, n_sessions)

    def check_reward(self, reward: FloatArray) -> None:
        self.model.check_reward(reward)

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        return self.model.expected_rewards(context, state)

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        return self.model.log_likelihood(context, action, reward)


# One more state, for sessions that are like none of the states that the model knows.


def with_catch_all(model: Model) -> Model:
    """Return `model` with one more state, whose prior is as wide as all its states and actions.

    A session that no state explains is then learned from scratch. The prior probability P1(s) of
    the new state is 1 / (n_states + 1), as for one of n_states + 1 equal states.

    >>> from latentbandits import GaussianArms
    >>> model = with_catch_all(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
    >>> model.means[-1], model.spread[-1].round(3)
    (array([0.5, 0.5]), array([0.367, 0.367]))
    """
    if not isinstance(model, Extendable):
        raise TypeError(
            f"a {type(model).__name__} has no vague state of its own: catch_all works with "
            "conjugate arms and linear models; give an Ensemble or Markov a model that has one "
            "already, with_catch_all(model)"
        )
    return model.with_state(model.vague(), 1 / (model.n_states + 1))


class NothingToLearn(NamedTuple):
    """The parameters of a certain model: one empty row for every session."""

    nothing: FloatArray  # (n_sessions, 0)


class CertainModel:
    """The methods of `Model` for a `KnownModel`: the prior over parameters is a point."""

    is_certain = True
    spread_bound = 0.0

    def parameters(self: KnownModel, n_sessions: int) -> NothingToLearn:
        return NothingToLearn(np.empty((session_count(n_sessions, self.n_sessions), 0)))

    def condition(
        self: KnownModel, parameters: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, NothingToLearn]:
        return self.log_likelihood(context, action, reward), parameters

    def posterior_rewards(
        self: KnownModel, parameters: Any, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        mean = self.expected_rewards(context)
        mean = np.broadcast_to(mean, (len(parameters.nothing), *mean.shape[1:]))
        return mean, np.zeros(mean.shape)

    def reward_laws(self: Model, parameters: Any, context: Context) -> tuple[Component, ...]:
        mean, _ = self.posterior_rewards(parameters, context)
        return (Component(None, Points(mean[:, :, None], np.ones((*mean.shape[:2], 1)))),)

    def sample_rewards(
        self: Model, parameters: Any, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        if state.shape[1] == 1:
            return self.expected_rewards(context, state[:, 0])[:, None]
        mean, _ = self.posterior_rewards(parameters, context)
        return mean[np.arange(len(state))[:, None], state]

    def probability_best(
        self: Model,
        parameters: Any,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> FloatArray:
        return shares_best(self.posterior_rewards(parameters, context)[0], eligible)


class OneState(CertainModel, Wrapping):
    """A single state of a certain model, which all sessions share."""

    n_states = 1
    transition = None

    def __init__(self, model: KnownModel, state: int) -> None:
        self.model = model
        self._state = state

    @property
    def log_state_prior(self) -> FloatArray:
        return np.zeros((1, 1))

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        if state is not None:
            return self.model.expected_rewards(context, np.full(len(state), self._state))
        return self.model.expected_rewards(context)[:, [self._state]]

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        return self.model.log_likelihood(context, action, reward)[:, [self._state]]


class Known(CertainModel, Wrapping):
    """A model whose point estimates are taken as true: its uncertainty is ignored."""

    def __init__(self, model: KnownModel) -> None:
        self.model = model

    @property
    def transition(self) -> FloatArray | None:
        return self.model.transition
