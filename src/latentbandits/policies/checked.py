"""The base class of our policies: it checks inputs once, before any computation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief, KnownBelief
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.protocol import Context, KnownModel, Model, with_defaults
from latentbandits.policies import decision
from latentbandits.policies.decision import (
    ActionProbabilities,
    Decision,
    PropensityKind,
    check_eligible,
    check_outcome,
)
from latentbandits.policies.protocol import Asked as Asked
from latentbandits.policies.protocol import BeliefT, LearnsFrom, Policy, hidden_looks


class Choice(NamedTuple):
    """The choice of a policy before it becomes a `Decision`; every field is `(n_sessions,)`."""

    action: IntArray
    state: IntArray
    propensity: FloatArray | None
    kind: PropensityKind


class Outcome(NamedTuple):
    """One rewarded decision of each session, checked."""

    context: Any  # as in `Asked`
    decision: Decision
    action: IntArray
    reward: FloatArray
    moves: bool = True  # whether time moves on: not before the last position of a list
    looked: FloatArray | None = None  # (n_sessions,): see `update_position`


class CheckedPolicy(Policy[BeliefT], ABC):
    """Base class; a subclass has `checked_context`, `_choose` and `_learn`.

    If the probabilities of its actions are known, it has `_probabilities` too.

    A belief is a NamedTuple whose first field is an array with sessions first.
    """

    order_free: ClassVar[bool | None] = True

    def decide(
        self,
        belief: BeliefT,
        context: Any,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
        propensity: bool = True,
    ) -> Decision:
        """Choose an eligible action for every session; `propensity=False` saves its cost."""
        if not isinstance(rng, (np.random.Generator, decision.StreamPerSession)):
            raise TypeError(
                f"rng must be a numpy Generator, numpy.random.default_rng(seed); got {rng!r}"
            )
        asked = self._asked(belief, context, eligible, rng)
        chosen = self._choose(belief, asked, propensity)
        return Decision(*chosen, self.name, asked.eligible)

    def _asked(
        self, belief: BeliefT, context: Any, eligible: ArrayLike | None, rng: np.random.Generator
    ) -> Asked:
        """Return the checked request; ValueError if it is impossible."""
        n = _n_sessions(belief)
        features, n_actions = self.checked_context(context, n)
        return Asked(features, check_eligible(eligible, n, n_actions), rng)

    def update(
        self, belief: BeliefT, context: Any, decision: Decision, reward: ArrayLike
    ) -> BeliefT:
        """Return the belief after these rewards; ValueError before anything has changed."""
        return self._learn(belief, self._outcome(belief, context, decision, reward))

    def update_position(
        self,
        belief: BeliefT,
        context: Any,
        decision: Decision,
        reward: ArrayLike,
        *,
        last: bool,
        looked: FloatArray | None = None,
    ) -> BeliefT:
        if looked is not None and not self.learns_unseen:
            raise ValueError(hidden_looks(self.name))
        outcome = self._outcome(belief, context, decision, reward)
        return self._learn(belief, outcome._replace(moves=last, looked=looked))

    def _outcome(
        self, belief: BeliefT, context: Any, decision: Decision, reward: ArrayLike
    ) -> Outcome:
        """Return the checked outcome of a round; ValueError if it is impossible."""
        n = _n_sessions(belief)
        features, n_actions = self.checked_context(context, n)
        action, rewards = check_outcome(self.name, decision, reward, n, n_actions)
        self._check_reward(rewards)
        return Outcome(features, decision, action, rewards)

    def action_probabilities(
        self,
        belief: BeliefT,
        context: Any,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
    ) -> ActionProbabilities:
        """Return the distribution over actions that `decide` draws from.

        `rng` is used only where the kind is "counted" or "conditional".
        """
        return self._probabilities(belief, self._asked(belief, context, eligible, rng))

    def state_probabilities(self, belief: BeliefT) -> FloatArray:
        """Return P(s) given the session's rewards, `(n_sessions, n_states)`."""
        return np.ones((_n_sessions(belief), 1))

    @abstractmethod
    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        """Return the checked context and the number of actions."""

    def _check_reward(self, reward: FloatArray) -> None:
        """Raise ValueError for impossible rewards; here every finite number is possible."""

    @abstractmethod
    def _choose(self, belief: BeliefT, asked: Asked, propensity: bool) -> Choice: ...

    @abstractmethod
    def _learn(self, belief: BeliefT, outcome: Outcome) -> BeliefT: ...

    def _probabilities(self, belief: BeliefT, asked: Asked) -> ActionProbabilities:
        """Return the distribution over actions; here it is unknown."""
        n = _n_sessions(belief)
        shape = n, self.checked_context(asked.context, n)[1]
        return ActionProbabilities(np.full(shape, np.nan), "none")

    def _with_propensity(
        self, belief: BeliefT, asked: Asked, action: IntArray, state: IntArray, propensity: bool
    ) -> Choice:
        """Return a choice; if `propensity` is wanted, with that of `_probabilities`."""
        if not propensity:
            return Choice(action, state, None, "none")
        probabilities = self._probabilities(belief, asked)
        if probabilities.kind == "none":
            return Choice(action, state, None, "none")
        chance = decision.at(probabilities.values, action)
        if probabilities.kind == "counted":  # the decision itself counts as a draw, so never zero
            chance = (chance * self.propensity_draws + 1) / (self.propensity_draws + 1)
        return Choice(action, state, chance, probabilities.kind)


class Wrapper(CheckedPolicy[BeliefT], ABC):
    """Base class of a policy around another one, `_inner`, with the properties of the inner one."""

    @property
    @abstractmethod
    def _inner(self) -> Policy[Any]: ...

    @property
    def learns_from(self) -> LearnsFrom:  # type: ignore[override]
        return self._inner.learns_from

    @property
    def n_states(self) -> int:
        return self._inner.n_states

    @property
    def model_or_none(self) -> KnownModel | None:
        return self._inner.model_or_none

    @property
    def for_clicks(self) -> bool:
        return self._inner.for_clicks

    @property
    def population_size(self) -> int | None:
        return self._inner.population_size

    def checked_context(self, context: Any, n_sessions: int) -> tuple[Any, int]:
        return self._inner.checked_context(context, n_sessions)


class LargestScore(CheckedPolicy[BeliefT], ABC):
    """Base class of policies that play the action of the largest score, ties at random."""

    row_wise: ClassVar[bool] = True

    @abstractmethod
    def _scores(self, belief: BeliefT, asked: Asked) -> FloatArray:
        """Return the score of every action, `(n_sessions, n_actions)`.

        Scores of actions that are not eligible are ignored, so they need not be computed.
        """

    def _believed_state(self, belief: BeliefT) -> IntArray:
        """Return the state that a decision reports, `(n_sessions,)`."""
        return np.zeros(_n_sessions(belief), np.int64)

    def _choose(self, belief: BeliefT, asked: Asked, propensity: bool) -> Choice:
        scores = self._scores(belief, asked)
        action = decision.pick_best(scores, asked.eligible, asked.rng)
        state = self._believed_state(belief)
        if not propensity:
            return Choice(action, state, None, "none")
        best = decision.best(decision.restrict(scores, asked.eligible))
        return Choice(action, state, 1 / np.count_nonzero(best, axis=1), "exact")

    def _probabilities(self, belief: BeliefT, asked: Asked) -> ActionProbabilities:
        best = decision.best(decision.restrict(self._scores(belief, asked), asked.eligible))
        return ActionProbabilities(decision.shares(best), "exact")


def _n_sessions(belief: object) -> int:
    return len(belief[0])  # type: ignore[index]


# Base classes of policies that act on a model of latent states.


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


class WithModel(CheckedPolicy[BeliefT], ABC):
    """A policy with a `model`, which says which actions there are."""

    model: KnownModel

    def __post_init__(self) -> None:
        check_model(self, self.model)

    @property
    def model_or_none(self) -> KnownModel:
        return self.model

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        return check_context(self.model, context, n_sessions)


class LatentPolicy(WithModel[LatentBeliefT], ABC):
    """A policy that acts on a `model` of latent states."""

    @property
    def n_states(self) -> int:
        return self.model.n_states

    def _check_reward(self, reward: FloatArray) -> None:
        self.model.check_reward(reward)


class PosteriorPolicy(LatentPolicy[WeightedBeliefT], ABC):
    """A latent policy whose belief has a posterior over states."""

    def state_probabilities(self, belief: WeightedBeliefT) -> FloatArray:
        """Return P(s) given the session's rewards, `(n_sessions, n_states)`."""
        return joint.probabilities(self._log_weights(belief))

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
        return joint.known_prior(self.model, n_sessions)

    def mean_rewards(self, belief: KnownBelief, context: Context) -> FloatArray:
        return joint.known_mean_rewards(self.model, belief, context)

    def _learn(self, belief: KnownBelief, outcome: Outcome) -> KnownBelief:
        context, _, action, reward, moves, looked = outcome
        return joint.condition_known(
            self.model, belief, context, action, reward, moves=moves, looked=looked
        )

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
        context, _, action, reward, moves, looked = outcome
        return joint.condition(
            self.model, belief, context, action, reward, moves=moves, looked=looked
        )

    @property
    def learns_unseen(self) -> bool:
        return with_defaults(self.model).learns_unseen
