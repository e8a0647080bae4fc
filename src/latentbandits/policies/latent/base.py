"""Base classes of policies that act on a model of latent states."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.beliefs import joint, known, states
from latentbandits.beliefs.joint import JointBelief
from latentbandits.beliefs.known import KnownBelief
from latentbandits.models.arms.position_clicks import PositionClicks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.protocol import Context, KnownModel, Model
from latentbandits.policies.checked import CheckedPolicy, LargestScore, Outcome


class HasLogWeights(Protocol):
    """A belief that has log weights of the states."""

    @property
    def log_weights(self) -> FloatArray: ...

    def _replace(self, *, log_weights: FloatArray) -> Self: ...


LatentBeliefT = TypeVar("LatentBeliefT")
WeightedBeliefT = TypeVar("WeightedBeliefT", bound=HasLogWeights)


def check_context(
    model: KnownModel, context: ArrayLike | None, n_sessions: int
) -> tuple[Context, int]:
    """Return the checked context, and the number of actions of the model or of the context."""
    features = model.check_context(context, n_sessions)
    n_actions = model.n_actions
    if n_actions is not None:
        return features, n_actions
    assert features is not None, "a model without n_actions takes them from the context"
    return features, features.shape[1]


_KNOWN = ("n_states", "log_state_prior", "check_context", "expected_rewards", "log_likelihood")
_JOINT = (*_KNOWN, "parameters", "condition", "posterior_rewards", "sample_rewards")


def check_model(policy: object, model: object, needed: tuple[str, ...] = _KNOWN) -> None:
    """Raise TypeError unless `model` has the `needed` attributes of a model."""
    kind = type(model)
    if isinstance(model, type) or any(
        not hasattr(kind, n) and not hasattr(model, n) for n in needed
    ):
        got = model.__name__ if isinstance(model, type) else kind.__name__
        raise TypeError(
            f"{type(policy).__name__} needs a model of latent states, such as "
            f"GaussianArms(means, noise, spread); got {'the class ' * isinstance(model, type)}{got}"
        )


def learned(
    condition: Callable[..., WeightedBeliefT], model: KnownModel, belief: Any, outcome: Outcome
) -> WeightedBeliefT:
    """Return the belief after an outcome, by `known.condition` or `joint.condition`."""
    observed = outcome.context, outcome.action, outcome.reward
    return condition(model, belief, *observed, moves=outcome.moves, looked=outcome.looked)


class LatentPolicy(CheckedPolicy[LatentBeliefT], ABC):
    """A policy that acts on a `model` of latent states."""

    model: KnownModel

    def __post_init__(self) -> None:
        check_model(self, self.model)

    @property
    def n_states(self) -> int:
        return self.model.n_states

    @property
    def model_or_none(self) -> KnownModel:
        return self.model

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        return check_context(self.model, context, n_sessions)

    def _check_reward(self, reward: FloatArray) -> None:
        self.model.check_reward(reward)


class PosteriorPolicy(LatentPolicy[WeightedBeliefT], ABC):
    """A latent policy whose belief has a posterior over states."""

    def state_probabilities(self, belief: WeightedBeliefT) -> FloatArray:
        """Return P(s) given the session's rewards, `(n_sessions, n_states)`."""
        return states.probabilities(self._log_weights(belief))

    def _log_weights(self, belief: WeightedBeliefT) -> FloatArray:
        """Return log P(s) given the session's rewards, to a constant: `(n_sessions, n_states)`."""
        return belief.log_weights

    def shift_state_prior(self, belief: WeightedBeliefT, shift: FloatArray) -> WeightedBeliefT:
        """Add `shift` to the log weights; a catch-all state comes last and keeps its prior."""
        shifted = np.array(belief.log_weights)
        shifted[:, : shift.shape[1]] += shift
        return belief._replace(log_weights=shifted)


class LargestPosteriorScore(LargestScore[WeightedBeliefT], PosteriorPolicy[WeightedBeliefT], ABC):
    """Play the action of the largest score; a decision reports the most probable state."""

    def _believed_state(self, belief: WeightedBeliefT) -> IntArray:
        state: IntArray = belief.log_weights.argmax(axis=1)
        return state


class KnownPolicy(PosteriorPolicy[KnownBelief], ABC):
    """A policy that takes the model as true: the belief is over states alone (Algorithm 2)."""

    def init(self, n_sessions: int = 1) -> KnownBelief:
        return known.prior(self.model, n_sessions)

    def mean_rewards(self, belief: KnownBelief, context: Context) -> FloatArray:
        return known.mean_rewards(self.model, belief, context)

    def _learn(self, belief: KnownBelief, outcome: Outcome) -> KnownBelief:
        return learned(known.condition, self.model, belief, outcome)

    @property
    def learns_unseen(self) -> bool:
        return True


class JointPolicy(PosteriorPolicy[JointBelief], ABC):
    """A policy whose belief is over states and uncertain parameters (Algorithm 3)."""

    model: Model

    def __post_init__(self) -> None:
        check_model(self, self.model, _JOINT)

    def init(self, n_sessions: int = 1) -> JointBelief:
        return joint.prior(self.model, n_sessions)

    def mean_rewards(self, belief: JointBelief, context: Context) -> FloatArray:
        return joint.mean_rewards(self.model, belief, context)

    def _learn(self, belief: JointBelief, outcome: Outcome) -> JointBelief:
        return learned(joint.condition, self.model, belief, outcome)

    @property
    def learns_unseen(self) -> bool:
        return self.model.is_certain or isinstance(self.model, PositionClicks)
