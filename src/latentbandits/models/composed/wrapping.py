"""Delegation to a model inside another."""

from __future__ import annotations

from numpy.typing import ArrayLike

from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.laws import Support
from latentbandits.models.protocol import Context, Extendable, KnownModel, Model, support_of


class Wrapping:
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
        return support_of(self.model)

    @property
    def inner_models(self) -> tuple[KnownModel, ...]:
        return (self.model,)

    @property
    def noise(self) -> float:
        return self.model.noise

    @property
    def reward_bounds(self) -> tuple[float, float] | None:
        """The smallest and the largest possible reward; None where the family has no bounds."""
        return self.support.bounds

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
