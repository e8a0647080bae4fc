"""Optimism over the states that are still consistent with the rewards (Algorithm 1)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray, session_count
from latentbandits.models.protocol import KnownModel, Model
from latentbandits.policies import decision
from latentbandits.policies.checked import Asked, Choice, Outcome
from latentbandits.policies.decision import ActionProbabilities, check_state
from latentbandits.policies.latent.base import LatentBeliefT, LatentPolicy
from latentbandits.policies.protocol import LearnsFrom

# The states that are consistent with a session's rewards (mUCB and mmUCB, Algorithm 1).


class GapBelief(NamedTuple):
    """N(s), the rounds in which s was believed, and G(s), the sum of (mean - reward) over them."""

    counts: FloatArray  # (n_sessions, n_states)
    gaps: FloatArray  # (n_sessions, n_states)


def no_gaps(n_sessions: int, n_states: int) -> GapBelief:
    """Return the belief of sessions without rewards."""
    return GapBelief(np.zeros((n_sessions, n_states)), np.zeros((n_sessions, n_states)))


def add_gap(belief: GapBelief, state: IntArray, gap: FloatArray) -> GapBelief:
    """Return the belief after a round in which `state` (n,) was believed, with this `gap` (n,)."""
    counts, gaps = belief.counts.copy(), belief.gaps.copy()
    session = np.arange(len(state))
    counts[session, state] += 1
    gaps[session, state] += gap
    return GapBelief(counts, gaps)


def consistent_states(belief: GapBelief, noise: float, horizon: int | None) -> BoolArray:
    """Return C = { s : G(s) <= noise sqrt(6 N(s) log n) } as a mask `(n_sessions, n_states)`.

    If the horizon n is None, log t stands for log n. A wrong model can rule out every state; then
    C is the state with the smallest average gap.
    """
    if horizon is None:
        log_n = np.log(belief.counts.sum(axis=1, keepdims=True) + 1)
    else:
        log_n = np.log(float(horizon))
    inside: BoolArray = belief.gaps <= noise * np.sqrt(6 * belief.counts * log_n)
    empty = ~inside.any(axis=1)
    if empty.any():  # then every state was believed at least once, so no count is zero
        average = belief.gaps[empty] / belief.counts[empty]
        inside[empty] = average == average.min(axis=1, keepdims=True)
    return inside


class BestPair(LatentPolicy[LatentBeliefT], ABC):
    """Play the action of one of the best (state, action) pairs, ties at random."""

    @abstractmethod
    def _best_pairs(self, belief: LatentBeliefT, asked: Asked) -> BoolArray:
        """Mark the best pairs of a state and an eligible action: `(n, S, K)`."""

    def _choose(self, belief: LatentBeliefT, asked: Asked, propensity: bool) -> Choice:
        pairs = self._best_pairs(belief, asked)
        flat = decision.pick(pairs.reshape(len(pairs), -1), asked.rng)
        state, action = np.divmod(flat, pairs.shape[2])
        if not propensity:
            return Choice(action, state, None, "none")
        return Choice(action, state, decision.at(_action_shares(pairs), action), "exact")

    def _probabilities(self, belief: LatentBeliefT, asked: Asked) -> ActionProbabilities:
        return ActionProbabilities(_action_shares(self._best_pairs(belief, asked)), "exact")


def _action_shares(pairs: BoolArray) -> FloatArray:
    """Return P(action) if one of the marked (state, action) pairs is picked uniformly."""
    counts = pairs.sum(axis=1)
    shares: FloatArray = counts / counts.sum(axis=1, keepdims=True)
    return shares


class _ConsistentUCB(BestPair[GapBelief], ABC):
    """Play (B, A) = argmax over consistent s and all a of mu_hat(a, x, s)."""

    learns_from: ClassVar[LearnsFrom] = "own"
    horizon: int | None

    @property
    @abstractmethod
    def _allowance(self) -> float:
        """Epsilon: the shortfall below the model's mean that does not count against a state."""

    def init(self, n_sessions: int = 1) -> GapBelief:
        return no_gaps(session_count(n_sessions, self.model.n_sessions), self.model.n_states)

    def state_probabilities(self, belief: GapBelief) -> FloatArray:
        """Return equal shares of the consistent states: this policy keeps a set, no posterior."""
        return decision.shares(consistent_states(belief, self.model.noise, self.horizon))

    def _best_pairs(self, belief: GapBelief, asked: Asked) -> BoolArray:
        """Mark the largest mu_hat over consistent states and eligible actions: `(n, S, K)`."""
        consistent = consistent_states(belief, self.model.noise, self.horizon)[:, :, None]
        allowed = consistent if asked.eligible is None else consistent & asked.eligible[:, None, :]
        scores = np.where(allowed, self.model.expected_rewards(asked.context), -np.inf)
        return decision.best(scores.reshape(len(scores), -1)).reshape(scores.shape)

    def _learn(self, belief: GapBelief, outcome: Outcome) -> GapBelief:
        state = check_state(outcome.decision, self.model.n_states)
        expected = decision.at(self.model.expected_rewards(outcome.context, state), outcome.action)
        return add_gap(belief, state, expected - self._allowance - outcome.reward)


@dataclass(frozen=True, eq=False)
class mUCB(_ConsistentUCB):
    """UCB with a known model (Algorithm 1).

    Args:
        model: a model of latent states, taken as true.
        horizon: number of rounds n; None: log t stands for log n.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mUCB(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5), horizon=500)
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([0])
    """

    model: KnownModel
    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_horizon(self.horizon)

    @property
    def _allowance(self) -> float:
        return 0.0


@dataclass(frozen=True, eq=False)
class mmUCB(_ConsistentUCB):
    """mUCB for a model that may be wrong by up to `slack` (epsilon of Theorem 2).

    The union bound of the paper's remark, sqrt(2 v^2 log(K S / delta)), is four to five times the
    model's spread on the synthetic problem (delta = 1/n) and rules states out too late to be of
    use. With the spread, mmUCB and mUCB come out alike, as the paper reports.

    Args:
        model: with the uncertainty that `slack` is derived from.
        slack: epsilon; None: the model's spread, its largest prior standard deviation.
        horizon: number of rounds n; None: log t stands for log n.

    >>> from latentbandits.models import GaussianArms
    >>> mmUCB(GaussianArms([[0.9, 0.1]], noise=0.5, spread=0.2)).epsilon
    0.2
    """

    model: Model
    slack: float | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_horizon(self.horizon)
        if self.slack is not None and not (math.isfinite(self.slack) and self.slack >= 0):
            raise ValueError(f"slack must be a finite number of at least zero; got {self.slack}")

    @property
    def epsilon(self) -> float:
        return self.model.spread_bound if self.slack is None else self.slack

    @property
    def _allowance(self) -> float:
        return self.epsilon


def check_horizon(horizon: int | None) -> None:
    """Raise ValueError unless `horizon` is a number of rounds, or None if it is unknown."""
    if horizon is not None and (int(horizon) != horizon or horizon < 1):
        raise ValueError(f"horizon must be a whole number of at least 1, or None; got {horizon!r}")
