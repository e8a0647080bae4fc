"""Structured bandits: the model selects actions that may be best, and rewards decide between them.

Theta_t = {s : |m_a - mu(a, s)| <= sqrt(2 alpha sigma^2 ln t / N_a) for every tried a} is the set of
states that the rewards so far allow, with N_a the plays of action a and m_a its average reward. The
model is known and has a fixed list of actions; the belief is counts and sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from latentbandits.models import checks
from latentbandits.models.arms.gaussian import ArmStatistics
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.laws import probability_largest
from latentbandits.models.protocol import KnownModel
from latentbandits.policies import decision
from latentbandits.policies.checked import Asked, Choice, LargestScore, LatentPolicy, Outcome
from latentbandits.policies.decision import ActionProbabilities
from latentbandits.policies.latent.ucb import BestPair


class ArmCounts(LatentPolicy[ArmStatistics], ABC):
    """A policy on a model with a fixed list of actions, whose belief is counts and sums of each."""

    def __post_init__(self) -> None:
        if self.model.n_actions is None:
            raise ValueError(
                f"{type(self).__name__} needs a model with a fixed list of actions: its published "
                "form knows no features"
            )

    def init(self, n_sessions: int = 1) -> ArmStatistics:
        assert self.model.n_actions is not None
        n = checks.session_count(n_sessions, self.model.n_sessions)
        shape = (n, self.model.n_actions)
        return ArmStatistics(np.zeros(shape), np.zeros(shape))

    def _learn(self, belief: ArmStatistics, outcome: Outcome) -> ArmStatistics:
        return belief.add(outcome.action, outcome.reward)


@dataclass(frozen=True, eq=False)
class _Structured(ArmCounts, ABC):
    """Counts and sums of every action, and the states that they allow."""

    model: KnownModel
    alpha: float = 3.0

    def __post_init__(self) -> None:
        checks.positive_number("alpha", self.alpha)
        super().__post_init__()

    def state_probabilities(self, belief: ArmStatistics) -> FloatArray:
        """Return equal shares of the states that are allowed; all states where none is."""
        allowed = self._allowed(belief)
        return decision.shares(allowed | ~allowed.any(axis=1, keepdims=True))

    def _violation(self, belief: ArmStatistics) -> FloatArray:
        """Return max_a |m_a - mu(a, s)| sqrt(N_a) of every state, `(n, S)`."""
        average = belief.sums / np.maximum(belief.counts, 1)
        gap = np.abs(average[:, None] - self.model.expected_rewards(None))
        violation: FloatArray = (gap * np.sqrt(belief.counts)[:, None]).max(axis=2)
        return violation

    def _log_round(self, belief: ArmStatistics) -> FloatArray:
        """Return ln t of the round that is to be played, `(n, 1)`."""
        log_round: FloatArray = np.log(belief.counts.sum(axis=1, keepdims=True) + 1)
        return log_round

    def _allowed(self, belief: ArmStatistics) -> BoolArray:
        """Return Theta_t, `(n, S)`; it may be empty."""
        bound = self.model.noise * np.sqrt(2 * self.alpha * self._log_round(belief))
        return self._violation(belief) <= bound

    def _least_violated(self, belief: ArmStatistics) -> IntArray:
        """Return the state with the least evidence against it, `(n,)`."""
        state: IntArray = self._violation(belief).argmin(axis=1)
        return state


class _BestAllowed(BestPair[ArmStatistics], _Structured, ABC):
    """Play the best action of the best state that is allowed."""

    @abstractmethod
    def _states(self, belief: ArmStatistics) -> BoolArray:
        """Return the states to be optimistic about, `(n, S)`; none: play any action."""

    def _best_pairs(self, belief: ArmStatistics, asked: Asked) -> BoolArray:
        """Mark the (state, action) pairs of the largest mean reward, `(n, S, K)`."""
        states = self._states(belief)[:, :, None]
        means = np.broadcast_to(
            self.model.expected_rewards(None), (*states.shape[:2], belief.counts.shape[1])
        )
        none = ~states.any(axis=1, keepdims=True)
        scores = np.where(states, means, np.where(none, 0.0, -np.inf))
        mask = None if asked.eligible is None else asked.eligible[:, None, :]
        scores = decision.restrict(scores, mask)
        return decision.best(scores.reshape(len(scores), -1)).reshape(scores.shape)


@dataclass(frozen=True, eq=False)
class SingleKUCB(_BestAllowed):
    """Single-K-UCB after Maillard & Mannor (2014): optimism over the classes that are allowed.

    `alpha` 3 is the paper's width sqrt(6 ln t / N_a). Where no class is allowed, because the model
    is wrong, the least violated class is played; that rule is chosen here.

    Args:
        model: mean rewards of every state.
        alpha: width of the intervals that allow a state.

    >>> from latentbandits.models import GaussianArms
    >>> policy = SingleKUCB(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([0])
    """

    def _states(self, belief: ArmStatistics) -> BoolArray:
        allowed = self._allowed(belief)
        empty = ~allowed.any(axis=1)
        if empty.any():
            violation = self._violation(belief)[empty]
            allowed[empty] = violation == violation.min(axis=1, keepdims=True)
        return allowed


@dataclass(frozen=True, eq=False)
class UCBS(_BestAllowed):
    """UCB-S of Lattimore & Munos (2014): argmax_a of the largest mu(a, s) that is allowed.

    Where no state is allowed it plays any action, as in the paper. `alpha` 3 gives the width of
    `SingleKUCB`; the paper's constant was not seen in print.

    Args:
        model: mean rewards of every state.
        alpha: width of the intervals that allow a state.

    >>> from latentbandits.models import GaussianArms
    >>> policy = UCBS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([0])
    """

    def _states(self, belief: ArmStatistics) -> BoolArray:
        return self._allowed(belief)


class _Competitive(_Structured, ABC):
    """Compare, by their own rewards, the actions that are best in some allowed state."""

    every_action_first: bool

    def _competitive(self, belief: ArmStatistics, eligible: BoolArray | None) -> BoolArray:
        """Return the actions to choose among, `(n, K)`: untried ones first, all where none is."""
        allowed = self._allowed(belief)
        means = decision.restrict(
            self.model.expected_rewards(None), None if eligible is None else eligible[:, None, :]
        )
        best = decision.best(means)
        chosen = (allowed[:, :, None] & best).any(axis=1)
        everything = ~allowed.any(axis=1, keepdims=True)
        chosen |= everything if eligible is None else everything & eligible
        untried = belief.counts == 0
        if self.every_action_first:
            first = untried if eligible is None else untried & eligible
        else:
            first = untried & chosen
        some = first.any(axis=1, keepdims=True)
        return np.where(some, first, chosen)

    def _average(self, belief: ArmStatistics) -> tuple[FloatArray, FloatArray]:
        """Return each action's average reward and sigma / sqrt(N_a)."""
        counts = np.maximum(belief.counts, 1)
        return belief.sums / counts, self.model.noise / np.sqrt(counts)


@dataclass(frozen=True, eq=False)
class UCBC(LargestScore[ArmStatistics], _Competitive):
    """UCB-C of Gupta et al. (2021): UCB1 among the actions that are best in some allowed state.

    A wrong model can do no more than select the wrong actions for this comparison.
    `every_action_first` plays each action once at the start, as the paper does; else only
    competitive ones.

    Args:
        model: mean rewards of every state.
        alpha: width of the intervals that allow a state.
        every_action_first: whether each action is played once at the start.

    >>> from latentbandits.models import GaussianArms
    >>> policy = UCBC(GaussianArms([[0.9, 0.1, 0.3], [0.2, 0.8, 0.1]], noise=0.5))
    >>> policy.action_probabilities(policy.init(), None, np.random.default_rng(0)).values
    array([[0.5, 0.5, 0. ]])
    """

    every_action_first: bool = False

    def _scores(self, belief: ArmStatistics, asked: Asked) -> FloatArray:
        average, deviation = self._average(belief)
        index = average + deviation * np.sqrt(2 * self.alpha * self._log_round(belief))
        index = np.where(belief.counts == 0, np.inf, index)
        return np.where(self._competitive(belief, asked.eligible), index, -np.inf)

    def _believed_state(self, belief: ArmStatistics) -> IntArray:
        return self._least_violated(belief)


@dataclass(frozen=True, eq=False)
class TSC(_Competitive):
    """TS-C of Gupta et al. (2021): Thompson sampling among the competitive actions.

    Draw N(m_a, beta sigma^2 / N_a) for each action that is best in some allowed state. This is the
    safe choice where the error of the model is unknown: it is never much worse than a policy
    without a model.

    Args:
        model: mean rewards of every state.
        alpha: width of the intervals that allow a state.
        beta: factor of the variance of a draw.
        every_action_first: whether each action is played once at the start.

    >>> from latentbandits.models import GaussianArms
    >>> policy = TSC(GaussianArms([[0.9, 0.1, 0.3], [0.2, 0.8, 0.1]], noise=0.5))
    >>> policy.action_probabilities(policy.init(), None, np.random.default_rng(0)).values
    array([[0.5, 0.5, 0. ]])
    """

    beta: float = 1.0
    every_action_first: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive_number("beta", self.beta)

    def _choose(self, belief: ArmStatistics, asked: Asked, propensity: bool) -> Choice:
        competitive = self._competitive(belief, asked.eligible)
        average, deviation = self._average(belief)
        untried = belief.counts == 0
        draws = average + np.sqrt(self.beta) * deviation * asked.rng.standard_normal(average.shape)
        scores = np.where(competitive, np.where(untried, np.inf, draws), -np.inf)
        action = decision.pick_best(scores, None, asked.rng)
        state = self._least_violated(belief)
        return self._with_propensity(belief, asked, action, state, propensity)

    def _probabilities(self, belief: ArmStatistics, asked: Asked) -> ActionProbabilities:
        competitive = self._competitive(belief, asked.eligible)
        average, deviation = self._average(belief)
        chance = probability_largest(
            average[:, None], (np.sqrt(self.beta) * deviation)[:, None], competitive
        )[:, 0]
        fresh = (competitive & (belief.counts == 0)).any(axis=1, keepdims=True)
        return ActionProbabilities(
            np.where(fresh, decision.shares(competitive), chance), "quadrature"
        )
