"""Policies around another policy: they forget older rounds, or explore.

Policies that forget are for problems that change (Garivier & Moulines 2011). They wrap UCB1,
LinUCB, mUCB or mmUCB. The belief of these is a sum over rounds, so the contribution of a round can
be discounted or subtracted. Posteriors forget through a model of how the state moves: see `Markov`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from latentbandits.models import checks
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.linear.gaussian import UserSums, condition_on_sums
from latentbandits.models.numerics.arrays import map_leaves
from latentbandits.models.protocol import Context
from latentbandits.policies import decision
from latentbandits.policies.checked import (
    Asked,
    CheckedPolicy,
    Choice,
    LargestScore,
    Outcome,
    Wrapper,
)
from latentbandits.policies.classic import UCB1, LinUCB
from latentbandits.policies.decision import ActionProbabilities, Decision, PropensityKind
from latentbandits.policies.latent.ucb import mmUCB, mUCB
from latentbandits.policies.protocol import AnyPolicy, ThreeMethods, adopt
from latentbandits.policies.registry import Inputs, build

# LinUCB whose belief is sums over rounds, so that rounds can be forgotten.


class FeatureSums(NamedTuple):
    """Sums over a session's rounds."""

    squares: FloatArray  # (n_sessions, n_features, n_features), of x x'
    products: FloatArray  # (n_sessions, n_features), of x r


@dataclass(frozen=True, eq=False)
class SummedLinUCB(LargestScore[FeatureSums]):
    """LinUCB on sums: the posterior is computed anew for every decision.

    >>> policy = SummedLinUCB(LinUCB(n_features=2))
    >>> policy.decide(policy.init(), [[[1.0, 0.0], [0.0, 2.0]]], np.random.default_rng(0)).action
    array([1])
    """

    policy: LinUCB

    def init(self, n_sessions: int = 1) -> FeatureSums:
        n, d = checks.session_count(n_sessions, None), self.policy.n_features
        return FeatureSums(np.zeros((n, d, d)), np.zeros((n, d)))

    def checked_context(self, context: ArrayLike | None, n_sessions: int) -> tuple[Context, int]:
        return self.policy.checked_context(context, n_sessions)

    def _scores(self, belief: FeatureSums, asked: Asked) -> FloatArray:
        unused = np.zeros(len(belief.products))  # the posterior of known noise needs no more sums
        sums = UserSums(belief.squares, belief.products, unused, unused)
        return self.policy._scores(condition_on_sums(self.policy.model, sums)[1], asked)

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
    contributions: (
        Any  # Contributions, or arrays like `sums` with a second axis of the window's rounds
    )


class Contributions(NamedTuple):
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
        return SummedLinUCB(policy) if isinstance(policy, LinUCB) else policy

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
    return Contributions(cell, decision.at(counts, cell), decision.at(values, cell))


def _summed(contributions: Any, like: Any) -> Any:
    """Return packed contributions summed over the window, in the form of `like`."""
    if not isinstance(contributions, Contributions):
        return map_leaves(lambda kept: kept.sum(axis=1), contributions)
    n, width = like[0].shape
    cell = (contributions.cell + width * np.arange(n)[:, None]).ravel()
    totals = (
        np.bincount(cell, weights.ravel(), n * width).reshape(n, width)
        for weights in (contributions.times, contributions.value)
    )
    return type(like)(*totals)


# A share of uniformly random actions, so that logs can be evaluated by inverse propensities.

_CERTAIN: tuple[PropensityKind, ...] = ("exact", "quadrature")


@dataclass(frozen=True, eq=False)
class Exploring(Wrapper[Any]):
    """Play a uniformly random eligible action with probability `e`, else the action of `policy`.

    The propensity of an action a is (1 - e) p(a) + e / |eligible|. Where the policy has no closed
    form of p, p(a) is the share of its own draws that pick a; the decision is one of these draws,
    and an action that exploration chose is not added to them. So the propensity is exact given
    the draws, at least e / |eligible|, and inverse weighting with it is unbiased; its kind is
    then "explored".

    Args:
        policy: any policy. One of your own that has three methods only and takes no context needs
            an attribute `n_actions`.
        e: probability of exploring, above 0 and at most 1.
        draws: how many draws estimate p where the policy has no closed form and no number of its
            own (`propensity_draws`).

    >>> from latentbandits import GaussianArms, mTS
    >>> policy = Exploring(mTS(GaussianArms([[0.9, 0.1], [0.8, 0.2]], noise=0.5)), e=0.1)
    >>> policy.action_probabilities(policy.init(), None, np.random.default_rng(0)).values
    array([[0.95, 0.05]])
    """

    policy: AnyPolicy | ThreeMethods[Any]
    e: float
    draws: int = 100

    def __post_init__(self) -> None:
        if isinstance(self.e, bool) or not isinstance(self.e, (int, float)) or not 0 < self.e <= 1:
            raise ValueError(f"e, the probability of exploring, must be in (0, 1]; got {self.e!r}")
        checks.positive_count("draws", self.draws)
        object.__setattr__(self, "policy", adopt(self.policy, "Exploring"))

    @property
    def _inner(self) -> AnyPolicy:
        return cast("AnyPolicy", self.policy)

    @property
    def name(self) -> str:
        return f"Exploring({self._inner.name})"

    @property
    def order_free(self) -> bool | None:  # type: ignore[override]
        """The attribute of the inner policy."""
        return self._inner.order_free

    def init(self, n_sessions: int = 1) -> Any:
        return self._inner.init(n_sessions)

    def shift_state_prior(self, belief: Any, shift: FloatArray) -> Any:
        return self._inner.shift_state_prior(belief, shift)

    def mean_rewards(self, belief: Any, context: Any) -> FloatArray | None:
        return self._inner.mean_rewards(belief, context)

    def state_probabilities(self, belief: Any) -> FloatArray:
        """Return the state probabilities of the inner policy."""
        probabilities = self._inner.state_probabilities(belief)
        return super().state_probabilities(belief) if probabilities is None else probabilities

    def decide_counting(
        self,
        belief: Any,
        context: Any,
        rng: np.random.Generator,
        draws: int,
        *,
        eligible: ArrayLike | None = None,
    ) -> Decision:
        """Decide for one session; p is estimated from `draws` + 1 draws where the inner policy can.

        Quicker than `decide` where the inner policy would integrate.
        """
        asked = self._asked(belief, context, eligible, rng)
        drawn = self._inner.sample_actions(belief, asked, draws + 1)
        if drawn is None:
            return self.decide(belief, context, rng, eligible=eligible)
        chosen = self._explore(self._from_draws(*drawn, asked), asked)
        return Decision(*chosen, self.name, asked.eligible)

    def _choose(self, belief: Any, asked: Asked, propensity: bool) -> Choice:
        if propensity:
            return self._explore(self._decided(belief, asked), asked)
        inner = self._inner.decide(
            belief, asked.context, asked.rng, eligible=asked.eligible, propensity=False
        )
        unknown = super()._probabilities(belief, asked)
        chosen = self._explore(_Decided(inner.action, inner.state, unknown), asked)
        return chosen._replace(propensity=None, kind="none")

    def _explore(self, inner: _Decided, asked: Asked) -> Choice:
        """Replace some actions by random ones, and give every action's propensity."""
        mask = _mask(inner.chances, asked)
        explores = asked.rng.random(len(mask)) < self.e
        explored = np.where(explores, decision.pick(mask, asked.rng), inner.action)
        mixed = self._mixed(inner.chances, asked)
        return Choice(explored, inner.state, decision.at(mixed.values, explored), mixed.kind)

    def _mixed(self, inner: ActionProbabilities, asked: Asked) -> ActionProbabilities:
        values = (1 - self.e) * inner.values + self.e * decision.shares(_mask(inner, asked))
        return ActionProbabilities(values, inner.kind if inner.kind in _CERTAIN else "explored")

    def _decided(self, belief: Any, asked: Asked) -> _Decided:
        """Decide by the inner policy, with p(a) of all actions."""
        policy, (context, eligible, rng) = self._inner, asked
        known = policy.action_probabilities(belief, context, rng, eligible=eligible)
        if known is None or known.kind in ("none", "counted"):
            return self._sampled(belief, asked)
        if known.kind in _CERTAIN:
            made = policy.decide(belief, context, rng, eligible=eligible, propensity=False)
            return _Decided(made.action, made.state, known)
        state = self.state_probabilities(belief).argmax(axis=1)
        return _Decided(decision.draw(known.values, rng), state, known)

    def _sampled(self, belief: Any, asked: Asked) -> _Decided:
        """Estimate p(a) by draws of the inner policy; the first draw is the decision."""
        policy, (context, eligible, rng) = self._inner, asked
        draws = policy.propensity_draws or self.draws
        drawn = policy.sample_actions(belief, asked, draws)
        if drawn is None:
            wide = [_repeated(value, draws) for value in (belief, context, eligible)]
            many = policy.decide(wide[0], wide[1], rng, eligible=wide[2], propensity=False)
            drawn = many.action.reshape(-1, draws), many.state.reshape(-1, draws)
        return self._from_draws(*drawn, asked)

    def _from_draws(self, action: IntArray, state: IntArray, asked: Asked) -> _Decided:
        """Return the first of the draws `(n_sessions, n_draws)`, and the share of each action."""
        n, draws = action.shape
        n_actions = self.checked_context(asked.context, n)[1]
        cell = action + n_actions * np.arange(n)[:, None]
        counts = np.bincount(cell.ravel(), minlength=n * n_actions).reshape(n, n_actions)
        return _Decided(action[:, 0], state[:, 0], ActionProbabilities(counts / draws, "counted"))

    def count_probabilities(
        self, belief: Any, asked: Asked, draws: int
    ) -> ActionProbabilities | None:
        inner = self._inner.count_probabilities(belief, asked, draws)
        return None if inner is None else self._mixed(inner, asked)

    def _learn(self, belief: Any, outcome: Outcome) -> Any:
        decision = replace(outcome.decision, policy=self._inner.name)
        context, reward = outcome.context, outcome.reward
        if outcome.moves and outcome.looked is None:
            return self._inner.update(belief, context, decision, reward)
        return self._inner.update_position(
            belief, context, decision, reward, last=outcome.moves, looked=outcome.looked
        )

    @property
    def learns_unseen(self) -> bool:
        return self._inner.learns_unseen

    def _probabilities(self, belief: Any, asked: Asked) -> ActionProbabilities:
        return self._mixed(self._decided(belief, asked).chances, asked)


class _Decided(NamedTuple):
    """A decision of the inner policy, its believed state, and p(a) of all actions."""

    action: IntArray
    state: IntArray
    chances: ActionProbabilities


def _mask(chances: ActionProbabilities, asked: Asked) -> BoolArray:
    """Return the mask of eligible actions, `(n_sessions, n_actions)`."""
    return np.ones(chances.values.shape, np.bool_) if asked.eligible is None else asked.eligible


def _repeated(tree: Any, times: int) -> Any:
    """Return every session of a tree of arrays `times` times, one after the other."""
    return None if tree is None else map_leaves(lambda leaf: np.repeat(leaf, times, axis=0), tree)


def build_exploring(
    inputs: Inputs, policy: str = "mmTS", e: float = 0.1, draws: int = 100
) -> Exploring:
    """Return `policy`, given as text, with a share of random actions."""
    return Exploring(build(policy, inputs), e, draws)


def build_discounted(inputs: Inputs, policy: str = "mUCB", factor: float = 0.99) -> Discounted:
    """Return `policy`, given as text, with older rounds discounted."""
    inner: Any = build(policy, inputs)
    return Discounted(inner, factor)


def build_window(inputs: Inputs, policy: str = "mUCB", rounds: int = 100) -> SlidingWindow:
    """Return `policy`, given as text, on the latest rounds."""
    inner: Any = build(policy, inputs)
    return SlidingWindow(inner, rounds)
