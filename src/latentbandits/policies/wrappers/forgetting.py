"""Policies that forget older rounds, for problems that change (Garivier & Moulines 2011).

They wrap UCB1, LinUCB, mUCB or mmUCB. The belief of these is a sum over rounds, so the
contribution of a round can be discounted or subtracted. Posteriors forget through a model of how
the state moves: see `Markov`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.protocol import Context
from latentbandits.models.trees import map_leaves
from latentbandits.policies import choice
from latentbandits.policies.checked import (
    Asked,
    CheckedPolicy,
    Choice,
    LargestScore,
    Outcome,
    Wrapper,
)
from latentbandits.policies.classic.ucb import UCB1, LinUCB
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.latent.ucb import mmUCB, mUCB

# LinUCB whose belief is sums over rounds, so that rounds can be forgotten.


class FeatureSums(NamedTuple):
    """Sums over a session's rounds."""

    squares: FloatArray  # (n_sessions, n_features, n_features), of x x'
    products: FloatArray  # (n_sessions, n_features), of x r


@dataclass(frozen=True, eq=False)
class RidgeUCB(LargestScore[FeatureSums]):
    """x'theta + alpha sqrt(x' A^-1 x), A = ridge I + sum x x', solved anew for every decision.

    >>> policy = RidgeUCB(n_features=2, alpha=1.0, ridge=1.0)
    >>> policy.decide(policy.init(), [[[1.0, 0.0], [0.0, 2.0]]], np.random.default_rng(0)).action
    array([1])
    """

    n_features: int
    alpha: float
    ridge: float

    def init(self, n_sessions: int = 1) -> FeatureSums:
        n, d = checks.session_count(n_sessions, None), self.n_features
        return FeatureSums(np.zeros((n, d, d)), np.zeros((n, d)))

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        features = checks.features(context, n_sessions, self.n_features)
        return features, features.shape[1]

    def _scores(self, belief: FeatureSums, asked: Asked) -> FloatArray:
        precision = belief.squares + self.ridge * np.eye(self.n_features)
        columns = np.concatenate(
            [belief.products[:, :, None], asked.context.swapaxes(1, 2)], axis=2
        )
        solved = np.linalg.solve(precision, columns)
        mean = (asked.context @ solved[:, :, :1])[:, :, 0]
        variance = np.einsum("nkd,ndk->nk", asked.context, solved[:, :, 1:])
        index: FloatArray = mean + self.alpha * np.sqrt(np.maximum(variance, 0.0))
        return index

    def _learn(self, belief: FeatureSums, outcome: Outcome) -> FeatureSums:
        x = outcome.context[np.arange(len(outcome.action)), outcome.action]
        return FeatureSums(
            belief.squares + x[:, :, None] * x[:, None, :],
            belief.products + x * outcome.reward[:, None],
        )


Summing = UCB1 | LinUCB | mUCB | mmUCB


class Faded(NamedTuple):
    """The inner policy's sums, in which older rounds count less."""

    rounds: FloatArray  # (n_sessions,)
    sums: Any


class Windowed(NamedTuple):
    """The inner policy's sums over the window, and the contribution of each of its rounds."""

    rounds: FloatArray  # (n_sessions,)
    sums: Any
    contributions: Any  # Cells, or arrays like `sums` with a second axis of the window's rounds


class Cells(NamedTuple):
    """Rounds that add to one cell each: to an action's for UCB1, to a state's for mUCB, mmUCB."""

    cell: IntArray  # (n_sessions, ...)
    times: FloatArray
    value: FloatArray


ForgettingT = TypeVar("ForgettingT", Faded, Windowed)


class _Forgetting(Wrapper[ForgettingT], ABC, Generic[ForgettingT]):
    """Base class: decide as the inner policy does on the sums that are left."""

    order_free: ClassVar[bool] = False
    policy: Summing

    def __post_init__(self) -> None:
        if not isinstance(self.policy, Summing):
            raise TypeError(
                f"{type(self).__name__} takes UCB1, LinUCB, mUCB or mmUCB, whose beliefs are sums "
                f"of rounds; got {type(self.policy).__name__}. Posteriors forget with Markov"
            )

    @property
    def name(self) -> str:
        return f"{type(self).__name__}({self.policy.name})"

    @property
    def _inner(self) -> CheckedPolicy[Any]:
        """The policy on sums: LinUCB's own belief is their solution."""
        policy = self.policy
        if isinstance(policy, LinUCB):
            return RidgeUCB(policy.n_features, policy.alpha, policy.ridge)
        return policy

    def state_probabilities(self, belief: ForgettingT) -> FloatArray:
        """Return the state probabilities of the inner policy."""
        return self._inner.state_probabilities(belief.sums)

    def _check_reward(self, reward: FloatArray) -> None:
        self._inner._check_reward(reward)

    def _choose(self, belief: ForgettingT, asked: Asked, propensity: bool) -> Choice:
        return self._inner._choose(belief.sums, asked, propensity)

    def _probabilities(self, belief: ForgettingT, asked: Asked) -> ActionProbabilities:
        return self._inner._probabilities(belief.sums, asked)

    def _learn(self, belief: ForgettingT, outcome: Outcome) -> ForgettingT:
        nothing = self._inner.init(len(outcome.action))
        return self._add(belief, self._inner._learn(nothing, outcome), outcome.moves)

    @abstractmethod
    def _add(self, belief: ForgettingT, contribution: Any, moves: bool) -> ForgettingT:
        """Return the belief after `contribution` to its sums; `moves`: after one more round."""


@dataclass(frozen=True, eq=False)
class Discounted(_Forgetting[Faded]):
    """Play `policy` with discounted rounds: one that is t rounds old has weight factor^t.

    Args:
        policy: UCB1, LinUCB, mUCB or mmUCB.
        factor: weight of a round relative to the next one, above 0 and at most 1.

    >>> from latentbandits import Decision
    >>> policy = Discounted(UCB1(n_actions=2), factor=0.5)
    >>> belief = policy.init()
    >>> for reward in (1.0, 0.0):
    ...     belief = policy.update(belief, None, Decision.logged([0]), [reward])
    >>> belief.sums.counts, belief.sums.sums
    (array([[1.5, 0. ]]), array([[0.5, 0. ]]))
    """

    policy: Summing
    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.factor <= 1:
            raise ValueError(f"factor must be in (0, 1]; got {self.factor}")

    def init(self, n_sessions: int = 1) -> Faded:
        return Faded(np.zeros(n_sessions), self._inner.init(n_sessions))

    def _add(self, belief: Faded, contribution: Any, moves: bool) -> Faded:
        if not moves:  # a position of a list is as new as its last one, which discounts it
            grown = map_leaves(lambda old, new: old + new / self.factor, belief.sums, contribution)
            return Faded(belief.rounds, grown)
        sums = map_leaves(lambda old, new: self.factor * old + new, belief.sums, contribution)
        return Faded(belief.rounds + 1, sums)


@dataclass(frozen=True, eq=False)
class SlidingWindow(_Forgetting[Windowed]):
    """Play `policy` on the last `rounds` rounds, and forget older ones.

    Args:
        policy: UCB1, LinUCB, mUCB or mmUCB.
        rounds: length of the window.

    >>> from latentbandits import Decision
    >>> policy = SlidingWindow(UCB1(n_actions=2), rounds=2)
    >>> belief = policy.init()
    >>> for reward in (5.0, 1.0, 0.0):
    ...     belief = policy.update(belief, None, Decision.logged([0]), [reward])
    >>> belief.sums.counts, belief.sums.sums
    (array([[2., 0.]]), array([[1., 0.]]))
    """

    policy: Summing
    rounds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive_count("rounds", self.rounds)

    def init(self, n_sessions: int = 1) -> Windowed:
        sums = self._inner.init(n_sessions)

        def empty(leaf: FloatArray) -> FloatArray:
            return np.zeros((len(leaf), self.rounds, *leaf.shape[1:]), leaf.dtype)

        return Windowed(np.zeros(n_sessions), sums, map_leaves(empty, _packed(sums)))

    def _add(self, belief: Windowed, contribution: Any, moves: bool) -> Windowed:
        """Sum over the window anew, so that rounding errors do not accumulate.

        Every observed position of a list counts as a round of the window.
        """
        session = np.arange(len(belief.rounds))
        oldest = belief.rounds.astype(np.int64) % self.rounds

        def replace(kept: FloatArray, new: FloatArray) -> FloatArray:
            kept = kept.copy()
            kept[session, oldest] = new
            return kept

        contributions = map_leaves(replace, belief.contributions, _packed(contribution))
        return Windowed(belief.rounds + 1, _summed(contributions, belief.sums), contributions)


def _packed(contribution: Any) -> Any:
    """Return the contribution of a round in sparse form: its cell, count and value."""
    if isinstance(contribution, FeatureSums):
        return contribution
    counts, values = contribution
    cell = counts.argmax(axis=1)
    return Cells(cell, choice.at(counts, cell), choice.at(values, cell))


def _summed(contributions: Any, like: Any) -> Any:
    """Return packed contributions summed over the window, in the form of `like`."""
    if not isinstance(contributions, Cells):
        return map_leaves(lambda kept: kept.sum(axis=1), contributions)
    n, width = like[0].shape
    cell = (contributions.cell + width * np.arange(n)[:, None]).ravel()
    totals = (
        np.bincount(cell, weights.ravel(), n * width).reshape(n, width)
        for weights in (contributions.times, contributions.value)
    )
    return type(like)(*totals)
