"""Bayes-UCB on the beliefs of mTS and mmTS: play the largest posterior quantile.

Kaufmann, Cappé & Garivier (2012) take the quantile of each arm's own posterior. Here it is that of
the mixture over latent states, sum_s P(s) F_{s,a}(x) = q.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latentbandits.beliefs import joint, states
from latentbandits.beliefs.joint import JointBelief
from latentbandits.beliefs.known import KnownBelief
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.laws import Component, Points
from latentbandits.models.protocol import Context, KnownModel, Model, reward_laws
from latentbandits.policies.checked import Asked
from latentbandits.policies.latent.base import JointPolicy, KnownPolicy, LargestPosteriorScore


class _Quantile(LargestPosteriorScore[Any], ABC):
    """The rule that both policies share; a subclass states the laws of the mean rewards."""

    row_wise: ClassVar[bool] = True
    quantile: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_quantile(self.quantile)

    @abstractmethod
    def _laws(self, belief: Any, context: Context) -> tuple[Component, ...]:
        """Return P(mu(a, x, s, theta) | s) for every action."""

    def _scores(self, belief: Any, asked: Asked) -> FloatArray:
        weights = states.probabilities(belief.log_weights)
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

    The quantile is that of the mixture over states of the model's own laws (normal, Student, beta,
    gamma, inverse gamma, particles), to a relative 1e-11. Deterministic up to ties.

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
        return reward_laws(self.model, belief.parameters, context)


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
        return joint.mean_rewards(self.model, belief, asked.context)


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

    Other actions get -inf: one-sided Chebyshev bounds (Cantelli) and the brackets of the search
    show that another action's quantile is larger. `weights` is P(s), `(n, n_states)`. An action
    that is the last one left gets a lower bound of its quantile, unless `exact`.
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
        scores[session, action] = _search(
            cases, weights[session], q, session, *bounds, start, exact
        )
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
    """Return the middle of the two largest estimates of each session; of one, that one."""
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
    session: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    start: FloatArray,
    exact: bool,
) -> FloatArray:
    """Return quantiles by Newton steps inside a bracket that bisection keeps shrinking.

    A case is left at -inf once its bracket lies below another one of its session.
    """
    best = np.full(int(session[-1]) + 1, -np.inf)  # the largest lower bound of each session
    settled = best.copy()  # the largest converged quantile of each session
    quantiles = np.full(len(session), -np.inf)
    active = np.arange(len(session))
    x, last, width = np.clip(start, lower, upper), upper - lower, upper - lower
    keep = np.ones(len(session), np.bool_)
    for _ in range(_MOST_STEPS):
        owner = session[active]
        if not exact:
            alone = keep & (np.bincount(owner[keep], minlength=len(best))[owner] == 1)
            alone &= settled[owner] < lower
            quantiles[active[alone]] = lower[alone]
            keep &= ~alone
        if not keep.all():
            if not keep.any():
                break
            active, owner, weights = active[keep], owner[keep], weights[keep]
            x, last, width, lower, upper = (v[keep] for v in (x, last, width, lower, upper))
            cases = [_rows(case, keep) for case in cases]
        chance, density = _mixture(cases, weights, x[:, None])
        reached = chance >= q - _SURE
        upper, lower = np.where(reached, x, upper), np.where(reached, lower, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = (q - chance) / density
        target, length = x + step, np.abs(step)
        close = _CLOSE * (np.abs(x) + width)
        short = (length <= close) & (np.abs(q - chance) < _NEARLY)
        done = short | (upper - lower <= close)
        if done.any():
            quantiles[active[done]] = np.where(short, target, upper)[done]
            np.maximum.at(settled, owner, quantiles[active])
        np.maximum.at(best, owner, np.where(done, quantiles[active], lower))
        keep = ~done & (upper >= best[owner])
        newton = (target >= lower) & (target <= upper) & (length <= 0.5 * last)
        x = np.where(newton, target, 0.5 * (lower + upper))
        last = np.where(newton, length, upper - lower)
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
