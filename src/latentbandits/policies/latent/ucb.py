"""Upper confidence bounds: consistent states (Algorithm 1), posterior quantiles, greedy play."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief, KnownBelief
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, session_count
from latentbandits.models.numerics.laws import Component, Points
from latentbandits.models.protocol import Context, KnownModel, Model, with_defaults
from latentbandits.policies import decision
from latentbandits.policies.checked import (
    Asked,
    Choice,
    JointPolicy,
    KnownPolicy,
    LargestPosteriorScore,
    LatentBeliefT,
    LatentPolicy,
    Outcome,
)
from latentbandits.policies.decision import ActionProbabilities, check_state
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_horizon(self.horizon)

    @property
    def epsilon(self) -> float:
        """The shortfall below the model's mean that does not count against a state."""
        return 0.0

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
        return add_gap(belief, state, expected - self.epsilon - outcome.reward)


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
        if self.slack is not None and not (math.isfinite(self.slack) and self.slack >= 0):
            raise ValueError(f"slack must be a finite number of at least zero; got {self.slack}")

    @property
    def epsilon(self) -> float:
        return self.model.spread_bound if self.slack is None else self.slack


def check_horizon(horizon: int | None) -> None:
    """Raise ValueError unless `horizon` is a number of rounds, or None if it is unknown."""
    if horizon is not None and (int(horizon) != horizon or horizon < 1):
        raise ValueError(f"horizon must be a whole number of at least 1, or None; got {horizon!r}")


def build_mmucb(
    model: Model,
    slack: float | None = None,
    horizon: int | None = None,
    items: FloatArray | None = None,
) -> mmUCB:
    """Build mmUCB with the slack of the catalogue's average item."""
    covariances = with_defaults(model).covariances
    if slack is None and items is not None and covariances is not None:
        slack = average_item_slack(items.mean(axis=0), covariances)
    return mmUCB(model, slack, horizon)


def average_item_slack(item: FloatArray, covariances: FloatArray) -> float:
    """Return epsilon of mmUCB for a linear model, sqrt(max_s x' Sigma_s x) for the average item x.

    mmUCB sums (model's mean - epsilon - reward) over the rounds in which it believed a state. For
    a user theta of state s the sum grows by x'(weights[s] - theta) a round, so the deviation of
    the average item decides. A bound for the worst single item is several times as large and
    rules no state out within a session.

    Args:
        item: mean features of the items that are shown, `(n_features,)`.
        covariances: of the weights in each state, `(..., n_states, n_features, n_features)`.
    """
    return math.sqrt(float(((covariances @ item) @ item).max()))


# Bayes-UCB on the beliefs of mTS and mmTS: play the largest posterior quantile.
#
# Kaufmann, Cappé & Garivier (2012) take the quantile of each arm's own posterior. Here it is that
# of the mixture over latent states, sum_s P(s) F_{s,a}(x) = q.


class _Quantile(LargestPosteriorScore[Any], ABC):
    """Base class of both quantile policies; a subclass states the laws of the mean rewards."""

    row_wise: ClassVar[bool] = True
    quantile: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_quantile(self.quantile)

    @abstractmethod
    def _laws(self, belief: Any, context: Context) -> tuple[Component, ...]:
        """Return P(mu(a, x, s, theta) | s) for every action."""

    def _scores(self, belief: Any, asked: Asked) -> FloatArray:
        weights = joint.probabilities(belief.log_weights)
        return largest_quantiles(
            self._laws(belief, asked.context), weights, self.quantile, asked.eligible
        )


@dataclass(frozen=True, eq=False)
class mBayesUCB(_Quantile, KnownPolicy):
    """Play the action with the largest q-quantile of mu_hat(a, x, s), s ~ P(s): a known model.

    The quantile is the least of the states' means up to which their probabilities reach
    `quantile`. Deterministic up to ties.

    Args:
        model: a model of latent states, taken as true.
        quantile: q, above 0 and below 1.

    >>> from latentbandits.models import GaussianArms
    >>> model = GaussianArms([[0.9, 0.5], [0.1, 0.5]], noise=0.5, state_prior=[0.2, 0.8])
    >>> rng = np.random.default_rng(0)
    >>> for quantile in (0.5, 0.9):
    ...     policy = mBayesUCB(model, quantile)
    ...     print(policy.decide(policy.init(), None, rng).action)
    [1]
    [0]
    """

    model: KnownModel
    quantile: float = 0.9

    def _laws(self, belief: KnownBelief, context: Context) -> tuple[Component, ...]:
        means = self.model.expected_rewards(context)[:, :, None]
        return (Component(None, Points(means, np.ones((1, means.shape[1], 1)))),)


@dataclass(frozen=True, eq=False)
class mmBayesUCB(_Quantile, JointPolicy):
    """Play the action with the largest q-quantile of its posterior mean reward: an uncertain model.

    The law of an action's mean reward is the mixture over states of the model's laws (normal,
    Student, beta, gamma, inverse gamma, particles); its quantile is exact to a relative 1e-11.
    Deterministic up to ties.

    Args:
        model: a model of latent states with uncertain parameters.
        quantile: q, above 0 and below 1.

    >>> from latentbandits.models import GaussianArms
    >>> policy = mmBayesUCB(GaussianArms([[0.5, 0.4]], noise=0.5, spread=[[0.01, 0.2]]))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([1])
    """

    model: Model
    quantile: float = 0.9

    def _laws(self, belief: JointBelief, context: Context) -> tuple[Component, ...]:
        return with_defaults(self.model).reward_laws(belief.parameters, context)


def check_quantile(quantile: float) -> None:
    """Raise ValueError unless 0 < quantile < 1."""
    number = not isinstance(quantile, bool) and isinstance(quantile, int | float)
    if not number or not 0 < quantile < 1:
        raise ValueError(
            f"quantile must be a number above 0 and below 1, such as 0.9; got {quantile!r}"
        )


# Greedy play of the posterior mean: a strong baseline where varying contexts explore enough.


@dataclass(frozen=True, eq=False)
class mmGreedy(LargestPosteriorScore[JointBelief], JointPolicy):
    """Play argmax_a of sum_s P(s) E[mu(a, x, s, theta) | s], on the joint belief of mmTS.

    Args:
        model: with uncertain parameters.

    >>> import numpy as np
    >>> from latentbandits.models import GaussianArms
    >>> policy = mmGreedy(GaussianArms([[0.9, 0.1], [0.2, 0.3]], noise=0.5, spread=0.1))
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action
    array([0])
    """

    model: Model

    def _scores(self, belief: JointBelief, asked: Asked) -> FloatArray:
        return self.mean_rewards(belief, asked.context)


# Quantiles of the mean reward of every action under a posterior over states and parameters.
#
# The posterior of mu(a) is a mixture over states, F_a(x) = sum_s w_s F_{s,a}(x). Its q-quantile is
# the least x with F_a(x) >= q (Kaufmann, Cappé & Garivier 2012: Bayes-UCB).

_SURE = 1e-12  # tolerance of probabilities, so that weights of 0.9 reach the quantile 0.9
_CLOSE = 1e-11  # relative width of a bracket that counts as converged
_NEARLY = 1e-6  # a short step counts as converged only this near the quantile
_FEW_STEPS = 8
_MOST_STEPS = 200


def largest_quantiles(
    components: Sequence[Component],
    weights: FloatArray,
    q: float,
    eligible: BoolArray | None,
    *,
    exact: bool = False,
) -> FloatArray:
    """Return the q-quantile of each eligible action that may have the largest one, `(n, K)`.

    Other actions get -inf: one-sided Chebyshev bounds (Cantelli) show that another action's
    quantile is larger. `weights` is P(s), `(n, n_states)`. The largest quantile of a session may be
    replaced by a threshold between it and the second largest, unless `exact`.
    """
    mean, variance = _moments(components, weights)
    deviation = np.sqrt(variance)
    lower = mean - np.sqrt((1 - q) / q) * deviation
    upper = mean + np.sqrt(q / (1 - q)) * deviation
    if eligible is not None:
        lower, upper = (np.where(eligible, bound, -np.inf) for bound in (lower, upper))
    top = lower[np.arange(len(lower)), lower.argmax(axis=1)]
    session, action = np.nonzero(upper >= top[:, None])
    scores = np.full(mean.shape, -np.inf)
    cases = [
        Component(None if share is None else share[session], law.take(session, action))
        for share, law in components
    ]
    if all(isinstance(case.law, Points) for case in cases):
        scores[session, action] = _of_points(cases, weights[session], q)
        return scores
    bounds = lower[session, action], upper[session, action]
    start = _normal_quantile(q) * deviation[session, action] + mean[session, action]
    left = np.arange(len(session))
    if not exact:
        left, winner, bound = _separate(cases, weights[session], q, session, *bounds, start)
        scores[session[winner], action[winner]] = bound
    if len(left) > 0:
        session, action, start = session[left], action[left], start[left]
        bounds = bounds[0][left], bounds[1][left]
        cases = [_rows(case, left) for case in cases]
        scores[session, action] = _search(cases, weights[session], q, *bounds, start)
    return scores


def _moments(components: Sequence[Component], weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the mixture, both `(n, n_actions)`."""
    parts = []
    for share, law in components:
        w = weights if share is None else weights * share
        parts.append((w[:, None], law.mean, law.variance))
    mean: FloatArray = np.sum([(w @ m)[:, 0] for w, m, _ in parts], axis=0)
    terms = [(w @ (v + (m - mean[:, None]) ** 2))[:, 0] for w, m, v in parts]
    return mean, np.sum(terms, axis=0)


def _of_points(cases: Sequence[Component], weights: FloatArray, q: float) -> FloatArray:
    """Return weighted quantiles, `(n_cases,)`: the least point up to which the weights reach q."""
    values, shares = [], []
    for share, law in cases:
        assert isinstance(law, Points)
        w = weights if share is None else weights * share
        values.append(law.values.reshape(len(weights), -1))
        shares.append((w[:, :, None] * law.shares).reshape(len(weights), -1))
    points, chances = np.concatenate(values, axis=1), np.concatenate(shares, axis=1)
    order = points.argsort(axis=1, kind="stable")
    reached = np.take_along_axis(chances, order, axis=1).cumsum(axis=1)
    place = (reached >= (q - _SURE) * reached[:, -1:]).argmax(axis=1)
    case = np.arange(len(points))
    quantiles: FloatArray = points[case, order[case, place]]
    return quantiles


def _separate(
    cases: Sequence[Component],
    weights: FloatArray,
    q: float,
    session: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    start: FloatArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Find the case of the largest quantile of each session by one threshold for all its cases.

    The quantile of a case is above a threshold t if F(t) < q. If that holds for one case, it is
    the largest; the next t lies between the two largest Newton estimates of the others. Return
    the cases of sessions that are not decided, the winners, and thresholds below their quantiles.
    """
    left = np.arange(len(session))
    winners, bounds = [], []
    for _ in range(_FEW_STEPS):
        owner = session[left]
        first = np.flatnonzero(np.diff(owner, prepend=-1))  # cases are sorted by session
        row = np.repeat(np.arange(len(first)), np.diff(first, append=len(owner)))
        t = _between_best(start, first, row)
        x = t[row]
        chance, density = _mixture(cases, weights, x[:, None])
        above = chance < q - _SURE
        count = np.add.reduceat(above, first, dtype=np.int64)
        won = above & (count[row] == 1)
        winners.append(left[won])
        bounds.append(x[won])
        keep = ~(count == 1)[row] & (above | (count == 0)[row])
        if not keep.any():
            left = left[:0]
            break
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            target = x + (q - chance) / density
        lower, upper = np.where(above, x, lower), np.where(above, upper, x)
        inside = (target > lower) & (target < upper)
        start = np.where(inside, target, 0.5 * (lower + upper))
        if not keep.all():
            left, start, lower, upper, weights = (
                array[keep] for array in (left, start, lower, upper, weights)
            )
            cases = [_rows(case, keep) for case in cases]
    return left, np.concatenate(winners), np.concatenate(bounds)


def _between_best(estimates: FloatArray, first: IntArray, row: IntArray) -> FloatArray:
    """Return the middle of each session's two largest estimates; a single estimate as it is."""
    best = np.maximum.reduceat(estimates, first)
    others = np.where(estimates < best[row], estimates, -np.inf)
    second = np.maximum.reduceat(others, first)
    return np.where(np.isfinite(second), 0.5 * (best + second), best)


def _rows(case: Component, keep: BoolArray | IntArray) -> Component:
    return Component(None if case.share is None else case.share[keep], case.law.rows(keep))


def _search(
    cases: Sequence[Component],
    weights: FloatArray,
    q: float,
    lower: FloatArray,
    upper: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Return quantiles by Newton steps inside a bracket that bisection keeps shrinking."""
    quantiles = np.full(len(start), -np.inf)
    active = np.arange(len(start))
    x, last, width = np.clip(start, lower, upper), upper - lower, upper - lower
    for _ in range(_MOST_STEPS):
        chance, density = _mixture(cases, weights, x[:, None])
        reached = chance >= q - _SURE
        upper, lower = np.where(reached, x, upper), np.where(reached, lower, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = (q - chance) / density
        target, length = x + step, np.abs(step)
        close = _CLOSE * (np.abs(x) + width)
        short = (length <= close) & (np.abs(q - chance) < _NEARLY)
        done = short | (upper - lower <= close)
        newton = (target >= lower) & (target <= upper) & (length <= 0.5 * last)
        x = np.where(newton, target, 0.5 * (lower + upper))
        last = np.where(newton, length, upper - lower)
        if done.any():
            quantiles[active[done]] = np.where(short, target, upper)[done]
            if done.all():
                break
            left = ~done
            active, weights = active[left], weights[left]
            x, last, width, lower, upper = (v[left] for v in (x, last, width, lower, upper))
            cases = [_rows(case, left) for case in cases]
    return quantiles


def _mixture(
    cases: Sequence[Component], weights: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return distribution function and density of the mixture at x, both `(n_cases,)`."""
    chance, density = np.zeros(len(x)), np.zeros(len(x))
    for share, law in cases:
        w = weights if share is None else weights * share
        chance += np.einsum("cs,cs->c", w, law.below(x))
        density += np.einsum("cs,cs->c", w, law.density(x))
    return chance, density


def _normal_quantile(q: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(q))
