"""What every model offers: the one interface that beliefs and policies are written against."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import BoolArray, FloatArray, IntArray

Context: TypeAlias = FloatArray | None
"""None, or the features of every action: `(n_sessions, n_actions, n_features)`."""

Parameters: TypeAlias = Any
"""What a session has taught about a model's parameters: a NamedTuple of arrays, sessions first.
Each model has its own kind; beliefs only pass it back to the model that made it."""


class KnownModel(Protocol):
    """What the m-policies need: a mean reward and a likelihood for every state."""

    @property
    def n_states(self) -> int: ...

    @property
    def n_actions(self) -> int | None:
        """None where the number of actions comes with the context."""

    @property
    def n_sessions(self) -> int | None:
        """How many sessions the arrays were made for; None: one instance that all share."""

    @property
    def noise(self) -> float:
        """The standard deviation of a reward (sigma, its sub-Gaussian scale)."""

    @property
    def log_state_prior(self) -> FloatArray:
        """Log P1(s), `(1 or n_sessions, n_states)`."""

    @property
    def transition(self) -> FloatArray | None:
        """P(next state | state), `(n_states, n_states)`; None: the state stands still."""

    def check_context(self, context: ArrayLike | None, n_sessions: int) -> Context:
        """The context as the other methods take it; ValueError says what is wrong with it."""

    def check_reward(self, reward: FloatArray) -> None:
        """ValueError if a reward `(n,)`, known to be finite, cannot come from this model."""

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        """mu_hat(a, x, s): `(1 or n, n_states, n_actions)`, or `(n, n_actions)` in `state` (n,)."""

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        """Log p(r | a, x, s) at the point estimate: `(n, n_states)`."""


class Model(KnownModel, Protocol):
    """And what the mm-policies need: a prior over the parameters that rewards can condition."""

    @property
    def spread_bound(self) -> float:
        """v: an upper bound on the standard deviation of mu(a, x, s, theta) under the prior."""

    def parameters(self, n_sessions: int) -> Parameters:
        """P1(theta) for sessions that have seen nothing."""

    def condition(
        self, parameters: Parameters, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, Parameters]:
        """The log predictive density of each reward in every state, `(n, n_states)`, and then
        P(theta | s, that reward too).
        """

    def posterior_rewards(
        self, parameters: Parameters, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and variance of mu(a, x, s, theta): both `(n, n_states, n_actions)`."""

    def sample_rewards(
        self,
        parameters: Parameters,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        """mu(a, x, s, theta_s), theta_s drawn given s: `(n, m, n_actions)` for `state` (n, m)."""

    def probability_best(
        self,
        parameters: Parameters,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> FloatArray | None:
        """P(a is the best eligible action | s), `(n, n_states, n_actions)`, to 1e-6 after weighing
        with P(s) = `weights`; None where only counting draws can tell.
        """


@runtime_checkable
class Selectable(Protocol):
    """A model that can be taken apart: what `Markov` needs of one with uncertain parameters."""

    def select(self, session: IntArray, state: IntArray) -> Model:
        """A model of one state and of len(session) sessions: the i-th is this model's
        `state[i]` in session `session[i]`.
        """


@runtime_checkable
class Extendable(Protocol):
    """A model that can say "none of these": what `mmTS(model, catch_all=True)` needs."""

    def vague(self) -> Model:
        """A model of one state, whose prior is as wide as all states and actions together."""

    def with_state(self, other: Model, probability: float) -> Model:
        """This model and one more state, that of `other`, with the given prior probability."""
