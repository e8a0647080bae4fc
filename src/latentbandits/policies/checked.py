"""The base class of our policies: it checks inputs once, before any computation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import KnownModel
from latentbandits.policies import decision
from latentbandits.policies.decision import (
    ActionProbabilities,
    Decision,
    PropensityKind,
    check_eligible,
    check_outcome,
)
from latentbandits.policies.protocol import BeliefT, LearnsFrom, Policy, hidden_looks

_NO_GENERATOR = "rng must be a numpy Generator, numpy.random.default_rng(seed); got {!r}"


class Choice(NamedTuple):
    """The choice of a policy before it becomes a `Decision`; every field is `(n_sessions,)`."""

    action: IntArray
    state: IntArray
    propensity: FloatArray | None
    kind: PropensityKind


class Asked(NamedTuple):
    """A request to decide for a batch of sessions, checked."""

    context: Any  # None, features (n_sessions, n_actions, n_features), or a Visit
    eligible: BoolArray | None
    rng: np.random.Generator


class Outcome(NamedTuple):
    """One rewarded decision of each session, checked."""

    context: Any  # as in `Asked`
    decision: Decision
    action: IntArray
    reward: FloatArray
    moves: bool = True  # whether time moves on: not before the last position of a list
    looked: FloatArray | None = None  # (n_sessions,): see `update_position`


class CheckedPolicy(Policy[BeliefT], ABC):
    """Base class; a subclass has `checked_context`, `_choose`, `_learn` and `_probabilities`.

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
        if not _is_generator(rng):
            raise TypeError(_NO_GENERATOR.format(rng))
        n = _n_sessions(belief)
        features, n_actions = self.checked_context(context, n)
        mask = check_eligible(eligible, n, n_actions)
        chosen = self._choose(belief, Asked(features, mask, rng), propensity)
        return Decision(*chosen, self.name, mask)

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
        n = _n_sessions(belief)
        features, n_actions = self.checked_context(context, n)
        mask = check_eligible(eligible, n, n_actions)
        return self._probabilities(belief, Asked(features, mask, rng))

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

    @abstractmethod
    def _probabilities(self, belief: BeliefT, asked: Asked) -> ActionProbabilities: ...


class Wrapper(CheckedPolicy[BeliefT], ABC):
    """The frame of a policy around another one, `_inner`, whose properties it passes on."""

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
    """The frame of a policy that plays the action of the largest score, ties at random."""

    row_wise: ClassVar[bool] = True

    @abstractmethod
    def _scores(self, belief: BeliefT, asked: Asked) -> FloatArray:
        """Return the score of every action, `(n_sessions, n_actions)`.

        Scores of actions that are not eligible are ignored, so they need not be computed.
        """

    def _believed_state(self, belief: BeliefT) -> IntArray | None:
        """Return the state that a decision reports, `(n_sessions,)`; None: state 0."""
        return None

    def _choose(self, belief: BeliefT, asked: Asked, propensity: bool) -> Choice:
        scores = self._scores(belief, asked)
        return choose_best(
            scores, asked.eligible, asked.rng, propensity, self._believed_state(belief)
        )

    def _probabilities(self, belief: BeliefT, asked: Asked) -> ActionProbabilities:
        return best_probabilities(self._scores(belief, asked), asked.eligible)


def choose_best(
    scores: FloatArray,
    eligible: BoolArray | None,
    rng: np.random.Generator,
    propensity: bool,
    state: IntArray | None = None,
) -> Choice:
    """Choose the best score of every session, ties at random."""
    action = decision.pick_best(scores, eligible, rng)
    if state is None:
        state = np.zeros(len(action), np.int64)
    if not propensity:
        return Choice(action, state, None, "none")
    ties = np.count_nonzero(decision.best(decision.restrict(scores, eligible)), axis=1)
    return Choice(action, state, 1 / ties, "exact")


def best_probabilities(scores: FloatArray, eligible: BoolArray | None) -> ActionProbabilities:
    """Return the distribution that `choose_best` draws from."""
    mask = decision.best(decision.restrict(scores, eligible))
    return ActionProbabilities(decision.shares(mask), "exact")


def _is_generator(rng: object) -> bool:
    """Tell whether `rng` is numpy's generator, or one with a stream for every session."""
    return isinstance(rng, (np.random.Generator, decision.StreamPerSession))


def _n_sessions(belief: object) -> int:
    return len(belief[0])  # type: ignore[index]
