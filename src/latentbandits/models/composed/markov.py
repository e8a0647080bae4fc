"""A latent state that moves between rounds (the paper's conclusion), for any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.lazy import cached_property
from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.composed.known import Known
from latentbandits.models.composed.paths import PathFilter
from latentbandits.models.composed.wrapping import Wrapping
from latentbandits.models.numerics.laws import Component
from latentbandits.models.protocol import Context, KnownModel, Model, Parameters
from latentbandits.models.support import Summary


@dataclass(frozen=True, eq=False, init=False)
class Markov(Wrapping):
    """A model whose state moves after every round: P(s' | s) = transition[s, s'].

    The belief is that of a hidden Markov model's filter: condition on the reward, then predict the
    next round's state. Uncertain parameters do not change while the state moves. They are followed
    along `n_paths` paths of states for each current state, which is exact while there are so few.

    Args:
        model: what the rewards of each state are.
        transition: P(s' | s), `(n_states, n_states)`; rows sum to one.
        n_paths: paths of states per current state, where parameters are uncertain.
        state_prior: P1(s) of the first round, `(n_states,)` or `(n_sessions, n_states)`; None is
            that of `model`.

    >>> from latentbandits import GaussianArms, mTS
    >>> model = Markov(GaussianArms([[1.0], [0.0]], noise=0.1), [[0.9, 0.1], [0.3, 0.7]])
    >>> policy = mTS(model)
    >>> decision = policy.decide(policy.init(), None, np.random.default_rng(0))
    >>> policy.state_probabilities(policy.update(policy.init(), None, decision, [1.0])).round(3)
    array([[0.9, 0.1]])
    """

    summary: ClassVar[Summary] = Summary(
        "any, and users change",
        "Markov(model, transition)",
        "that of the model",
        "how the state moves",
    )

    model: KnownModel
    transition: FloatArray
    n_paths: int
    state_prior: FloatArray | None

    def __init__(
        self,
        model: KnownModel,
        transition: ArrayLike,
        n_paths: int = 16,
        state_prior: ArrayLike | None = None,
    ) -> None:
        if model.transition is not None:
            raise ValueError("this model moves already: give Markov the model that it was made of")
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "n_paths", checks.positive_count("n_paths", n_paths))
        checks.set_fields(self, transition=checks.transition_matrix(transition, model.n_states))
        prior = None
        if state_prior is not None:
            lead = () if model.n_sessions is None else (model.n_sessions,)
            prior = checks.state_prior(state_prior, np.empty((*lead, model.n_states, 1)))
            checks.frozen(prior)
        object.__setattr__(self, "state_prior", prior)
        _ = self._learner  # raises now, not at the first decision, if the model is not Selectable

    @classmethod
    def switching(cls, model: KnownModel, probability: float, n_paths: int = 16) -> Self:
        """Return a model whose state moves to one of the others with this total probability.

        >>> from latentbandits import GaussianArms
        >>> Markov.switching(GaussianArms([[1.0], [0.0], [0.5]], noise=0.1), 0.2).transition
        array([[0.8, 0.1, 0.1],
               [0.1, 0.8, 0.1],
               [0.1, 0.1, 0.8]])
        """
        n = model.n_states
        away = _probability(probability) / max(n - 1, 1)
        rows = np.full((n, n), away) + (1 - away * n) * np.eye(n)
        return cls(model, rows if n > 1 else np.ones((1, 1)), n_paths)

    @classmethod
    def restarting(cls, model: KnownModel, probability: float, n_paths: int = 16) -> Self:
        """Return a model of change points: with this probability the state is drawn from P1(s).

        >>> from latentbandits import GaussianArms
        >>> Markov.restarting(GaussianArms([[1.0], [0.0]], noise=0.1), 0.2).transition
        array([[0.9, 0.1],
               [0.1, 0.9]])
        """
        prior = np.exp(model.log_state_prior)
        if (prior != prior[0]).any():
            raise ValueError("restarting needs a state_prior that all sessions share")
        again = _probability(probability)
        return cls(model, (1 - again) * np.eye(model.n_states) + again * prior[0], n_paths)

    @cached_property
    def log_state_prior(self) -> FloatArray:
        if self.state_prior is None:
            return self.model.log_state_prior
        return checks.log_prior(self.state_prior)

    @property
    def is_certain(self) -> bool:
        return self.model.is_certain

    @property
    def spread_bound(self) -> float:
        return 0.0 if self.model.is_certain else cast(Model, self.model).spread_bound

    def parameters(self, n_sessions: int) -> Parameters:
        return self._learner.parameters(n_sessions)

    def condition(
        self, parameters: Any, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, Parameters]:
        return self._learner.condition(parameters, context, action, reward)

    def posterior_rewards(self, parameters: Any, context: Context) -> tuple[FloatArray, FloatArray]:
        return self._learner.posterior_rewards(parameters, context)

    def reward_laws(self, parameters: Any, context: Context) -> tuple[Component, ...]:
        return self._learner.reward_laws(parameters, context)

    def sample_rewards(
        self, parameters: Any, context: Context, state: IntArray, rng: np.random.Generator
    ) -> FloatArray:
        return self._learner.sample_rewards(parameters, context, state, rng)

    def probability_best(
        self,
        parameters: Any,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> FloatArray | None:
        return self._learner.probability_best(parameters, context, eligible, weights)

    @cached_property
    def _learner(self) -> Known | PathFilter:
        """The filter over parameters; a certain model needs none."""
        if self.model.is_certain:
            return Known(self.model)
        return PathFilter(
            cast(Model, self.model), self.transition, self.n_paths, self.log_state_prior
        )


def _probability(value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"a probability must be in [0, 1]; got {value}")
    return float(value)
