"""The base class of our policies: it checks inputs once, before any computation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import Context
from latentbandits.policies import choice
from latentbandits.policies.decision import (
    ActionProbabilities,
    Decision,
    PropensityKind,
    check_eligible,
    check_outcome,
)
from latentbandits.policies.protocol import BeliefT

LearnsFrom = Literal["any", "own"]


_NO_GENERATOR = "rng must be a numpy Generator, numpy.random.default_rng(seed); got {!r}"


class Choice(NamedTuple):
    """The choice of a policy before it becomes a `Decision`; every field is `(n_sessions,)`."""

    action: IntArray
    state: IntArray
    propensity: FloatArray | None
    kind: PropensityKind


class CheckedPolicy(ABC, Generic[BeliefT]):
    """Base class; a subclass has `_check_context`, `_choose`, `_learn` and `_probabilities`.

    A belief is a NamedTuple whose first field is an array with sessions first.

    `order_free` says that the order in which a session's rewards arrive does not matter (for a
    model whose state stands still). `learns_from` is "own" for a policy that can learn only from
    its own decisions, because `update` uses the believed state or the propensity of a decision.
    """

    order_free: ClassVar[bool] = True
    learns_from: ClassVar[LearnsFrom] = "any"
    row_wise: ClassVar[bool] = False
    """Whether a session is decided alone as in a batch: with a generator that has one stream of
    random numbers per session, its decision does not depend on the other sessions of the batch."""

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    @abstractmethod
    def n_states(self) -> int: ...

    @abstractmethod
    def init(self, n_sessions: int = 1) -> BeliefT: ...

    def decide(
        self,
        belief: BeliefT,
        context: ArrayLike | None,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
        propensity: bool = True,
    ) -> Decision:
        """Choose an eligible action for every session; `propensity=False` saves its cost."""
        if not _is_generator(rng):
            raise TypeError(_NO_GENERATOR.format(rng))
        n = _n_sessions(belief)
        features, n_actions = self._check_context(context, n)
        mask = check_eligible(eligible, n, n_actions)
        chosen = self._choose(belief, features, mask, rng, propensity)
        return Decision(*chosen, self.name, mask)

    def update(
        self, belief: BeliefT, context: ArrayLike | None, decision: Decision, reward: ArrayLike
    ) -> BeliefT:
        """Return the belief after these rewards; ValueError before anything has changed."""
        n = _n_sessions(belief)
        features, n_actions = self._check_context(context, n)
        action, rewards = check_outcome(self.name, decision, reward, n, n_actions)
        self._check_reward(rewards)
        return self._learn(belief, features, decision, action, rewards)

    def action_probabilities(
        self,
        belief: BeliefT,
        context: ArrayLike | None,
        rng: np.random.Generator,
        *,
        eligible: ArrayLike | None = None,
    ) -> ActionProbabilities:
        """Return the distribution over actions that `decide` draws from.

        `rng` is used only where the kind is "counted" or "conditional".
        """
        n = _n_sessions(belief)
        features, n_actions = self._check_context(context, n)
        mask = check_eligible(eligible, n, n_actions)
        return self._probabilities(belief, features, mask, rng)

    def state_probabilities(self, belief: BeliefT) -> FloatArray:
        """Return P(s) given the session's rewards, `(n_sessions, n_states)`."""
        return np.ones((_n_sessions(belief), 1))

    @abstractmethod
    def _check_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        """Return the checked context and the number of actions."""

    def _check_reward(self, reward: FloatArray) -> None:
        """Raise ValueError for impossible rewards; here every finite number is possible."""

    @abstractmethod
    def _choose(
        self,
        belief: BeliefT,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice: ...

    @abstractmethod
    def _learn(
        self,
        belief: BeliefT,
        context: Context,
        decision: Decision,
        action: IntArray,
        reward: FloatArray,
    ) -> BeliefT: ...

    @abstractmethod
    def _probabilities(
        self,
        belief: BeliefT,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities: ...


class LargestScore(CheckedPolicy[BeliefT], ABC):
    """The frame of a policy that plays the action of the largest score, ties at random."""

    row_wise: ClassVar[bool] = True

    @abstractmethod
    def _scores(self, belief: BeliefT, context: Context, eligible: BoolArray | None) -> FloatArray:
        """Return the score of every action, `(n_sessions, n_actions)`.

        Scores of actions that are not eligible are ignored, so they need not be computed.
        """

    def _believed_state(self, belief: BeliefT) -> IntArray | None:
        """Return the state that a decision reports, `(n_sessions,)`; None: state 0."""
        return None

    def _choose(
        self,
        belief: BeliefT,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
        propensity: bool,
    ) -> Choice:
        scores = self._scores(belief, context, eligible)
        return choose_best(scores, eligible, rng, propensity, self._believed_state(belief))

    def _probabilities(
        self,
        belief: BeliefT,
        context: Context,
        eligible: BoolArray | None,
        rng: np.random.Generator,
    ) -> ActionProbabilities:
        return best_probabilities(self._scores(belief, context, eligible), eligible)


def choose_best(
    scores: FloatArray,
    eligible: BoolArray | None,
    rng: np.random.Generator,
    propensity: bool,
    state: IntArray | None = None,
) -> Choice:
    """Choose the best score of every session, ties at random."""
    action = choice.pick_best(scores, eligible, rng)
    if state is None:
        state = np.zeros(len(action), np.int64)
    if not propensity:
        return Choice(action, state, None, "none")
    ties = np.count_nonzero(choice.best(choice.restrict(scores, eligible)), axis=1)
    return Choice(action, state, 1 / ties, "exact")


def best_probabilities(scores: FloatArray, eligible: BoolArray | None) -> ActionProbabilities:
    """Return the distribution that `choose_best` draws from."""
    mask = choice.best(choice.restrict(scores, eligible))
    return ActionProbabilities(choice.shares(mask), "exact")


def _is_generator(rng: object) -> bool:
    """Tell whether `rng` is numpy's generator, or one with a stream for every session."""
    return isinstance(rng, np.random.Generator) or hasattr(rng, "random_where")


def _n_sessions(belief: object) -> int:
    return len(belief[0])  # type: ignore[index]
