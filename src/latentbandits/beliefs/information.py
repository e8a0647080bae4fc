"""Information-directed sampling: expected regret of an action against its information gain.

Scenarios are mean rewards of all actions with a weight each: the states of a known model, or draws
from a posterior. D(a) is the expected regret of action a, and v(a) the variance over the best
action a* of E[mu(a) | a*] (Russo & Van Roy 2014, the variance-based information ratio).

No array is larger than (scenarios x actions): scenarios are grouped by their best action, and the
pair of actions that minimises the ratio is looked for near the support line of the lower hull.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.beliefs.joint import JointBelief
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, frozen
from latentbandits.models.numerics.arrays import blocks, leaves, map_leaves
from latentbandits.models.protocol import Context, FromNormals, Model, Parameters

_ROUNDING = 1e-12  # a regret below this share of the best rewards is rounding error
_LEAST_INFORMATION = 1e-300
_LARGEST = float(np.finfo(np.float64).max)
_SMALL = 1e-200  # information below this, or above its inverse, is rescaled before comparison
_FEW_SCENARIOS = 16  # up to this many, one matrix product with all groups is fastest
FEW_ACTIONS = 24  # up to this many, trying all pairs is faster than searching the support line
_NEAR = 1e-7  # relative distance to the support line within which actions are compared exactly
_MOST_STEPS = 100  # each step visits a vertex of the hull; about five are needed
_MOST_POINTS = 256  # distinct points near the support line that are compared


class Best(NamedTuple):
    """The best eligible actions of every scenario."""

    mask: BoolArray  # (1 or n, m, n_actions)
    place: IntArray  # (1 or n, m): the first best action
    reward: FloatArray  # (1 or n, m)
    tied: bool  # some scenario has several best actions


def best_actions(rewards: FloatArray, eligible: BoolArray | None) -> Best:
    """Find the best actions for `rewards` `(1 or n, m, n_actions)`, `eligible` `(n, n_actions)`.

    >>> best_actions(np.array([[[1.0, 0.0], [0.0, 1.0]]]), None).place
    array([[0, 1]])
    """
    if eligible is not None:
        rewards = np.where(eligible[:, None], rewards, -np.inf)
    n, m, n_actions = rewards.shape
    place = rewards.argmax(axis=2)
    reward = rewards.reshape(-1).take(place + n_actions * np.arange(n * m).reshape(n, m))
    mask = rewards == reward[:, :, None]
    return Best(mask, place, reward, np.count_nonzero(mask) > n * m)


def regret_and_information(
    rewards: FloatArray, weights: FloatArray, best: Best
) -> tuple[FloatArray, FloatArray]:
    """Return D and v, both `(n, n_actions)`.

    `rewards` is `(n, m, n_actions)`, finite; `weights` `(n, m)` sums to one over the scenarios. A
    tie of best actions splits its scenario's weight. `rewards` may have one row for all n.

    >>> rewards = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> regret_and_information(rewards, np.array([[0.5, 0.5]]), best_actions(rewards, None))
    (array([[0.5, 0.5]]), array([[0.25, 0.25]]))
    """
    n, m = weights.shape
    if m == 1:  # the scenario is known: there is nothing to find out
        mean = weights * rewards[:, 0]
        information = np.zeros_like(mean)
    elif rewards.shape[2] <= m:
        membership = weights[:, :, None] * best.mask
        if best.tied:
            membership /= best.mask.sum(axis=2, keepdims=True)
        mean, information = _from_groups(rewards, weights, membership.swapaxes(1, 2))
    elif n > 1 and m <= _FEW_SCENARIOS and not best.tied:
        mean, information = _from_groups(rewards, weights, _by_first(weights, best.place))
    else:
        parts = []
        for i in range(n):
            session_rewards, row = rewards[i % len(rewards)], i % len(best.place)
            parts.append(
                _one_by_pattern(session_rewards, weights[i], best.mask[row])
                if best.tied
                else _one_by_place(session_rewards, weights[i], best.place[row])
            )
        mean, information = (
            part[0][None] if n == 1 else np.stack(part) for part in zip(*parts, strict=True)
        )
    return _regrets(weights * best.reward, mean), information


def _regrets(parts: FloatArray, mean: FloatArray) -> FloatArray:
    """Return the regrets of actions with these means `(n, n_actions)`; rounding errors become 0.

    `parts` `(n, m)` are the terms whose sum is the mean reward if the scenario is known.
    """
    regret = np.add.reduce(parts, axis=1, keepdims=True) - mean
    rounding = _ROUNDING * np.add.reduce(np.abs(parts), axis=1, keepdims=True)
    if (np.minimum.reduce(regret, axis=1, keepdims=True) < rounding).any():
        regret[regret < rounding] = 0.0
    return regret


def minimal_ratio_mixture(
    regret: FloatArray, information: FloatArray, eligible: BoolArray | None
) -> FloatArray:
    """Return the distribution over actions, `(n, n_actions)`, that minimises D^2 / v.

    A minimiser exists on one or two actions. Mixtures of a and b lie on the line D = c + g v
    through (v_a, D_a) and (v_b, D_b), where the ratio is least at v* = c / g: there it is
    4 c g = 4 g^2 v*. If v* is not between v_a and v_b, one of the two alone is better.
    Minimisers that tie share equally.

    >>> minimal_ratio_mixture(np.array([[0.0, 0.5]]), np.array([[0.1, 0.2]]), None)
    array([[1., 0.]])
    """
    if regret.shape[1] <= FEW_ACTIONS:
        return _all_pairs(_unit(regret), _unit(information), eligible)
    mixture = np.zeros(regret.shape)
    for row, (places, shares) in zip(mixture, supports(regret, information, eligible), strict=True):
        row[places] = shares
    return mixture


def supports(
    regret: FloatArray, information: FloatArray, eligible: BoolArray | None
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield the mixture of every session as its actions and their probabilities.

    >>> [(places, shares)] = supports(np.array([[0.0, 0.5]]), np.array([[0.1, 0.2]]), None)
    >>> places, shares
    (array([0]), array([1.]))
    """
    for i in range(len(regret)):
        D, v = regret[i], information[i]
        if eligible is None:
            yield _support(D, v)
        else:
            places = np.flatnonzero(eligible[i])
            near, shares = _support(D[places], v[places])
            yield places[near], shares


def _support(D: FloatArray, v: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the actions of one session's mixture and their probabilities."""
    most = v.item(v.argmax())
    if most > 0 and not _SMALL < most < 1 / _SMALL:  # squares could overflow or underflow
        D, v = _unit(D[None])[0], _unit(v[None])[0]
    near = _near_support_line(D, v)
    return near, _compared(D[near], v[near])


def _by_first(weights: FloatArray, place: IntArray) -> FloatArray:
    """Return P(scenario, group), `(n, m, m)`: a group is named by its first scenario."""
    first = (place[:, :, None] == place[:, None, :]).argmax(axis=2)
    result: FloatArray = weights[:, None, :] * (
        first[:, None, :] == np.arange(place.shape[1])[:, None]
    )
    return result


def _from_groups(
    rewards: FloatArray, weights: FloatArray, membership: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return E[mu] and v from P(scenario, group), `(n, n_groups, m)`.

    v is the sum over groups of (P(group) (E[mu | group] - E[mu]))^2 / P(group): one product with
    the rewards gives the roots of these terms, and E[mu] as one more row.
    """
    chance = membership.sum(axis=2, keepdims=True)
    centred = membership - chance * weights[:, None]
    centred /= np.sqrt(np.maximum(chance, _LEAST_INFORMATION))
    factors = np.concatenate([centred, weights[:, None]], axis=1)
    n, n_actions = len(weights), rewards.shape[2]
    mean, information = np.empty((n, n_actions)), np.empty((n, n_actions))
    for block in blocks(n_actions, factors.shape[0] * factors.shape[1]):
        products = factors @ rewards[:, :, block]
        roots = products[:, :-1]
        mean[:, block] = products[:, -1]
        np.einsum("ngk,ngk->nk", roots, roots, out=information[:, block])
    return mean, information


def _one_by_pattern(
    rewards: FloatArray, weights: FloatArray, best: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return E[mu] and v of one session whose scenarios tie.

    Actions that are best in the same scenarios have the same E[mu | a*]: they are one group.
    """
    columns = best[:, best.any(axis=0)]
    patterns, counts = np.unique(np.packbits(columns, axis=0), axis=1, return_counts=True)
    groups = np.unpackbits(patterns, axis=0, count=len(weights)).T * counts[:, None]
    membership = groups * (weights / best.sum(axis=1))
    information = np.zeros(rewards.shape[1])
    for block in blocks(len(membership), rewards.shape[1]):
        mean, part = _from_groups(rewards[None], weights[None], membership[None, block])
        information += part[0]
    return mean[0], information


def _one_by_place(
    rewards: FloatArray, weights: FloatArray, place: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return E[mu] and v of one session, by single scenarios where an action is best in one alone,
    and by groups elsewhere.
    """
    mean = weights @ rewards
    information = np.empty(len(mean))
    if len(set(place.tolist())) == len(place):
        for block in blocks(len(mean), len(weights)):
            centred = rewards[:, block] - mean[block]
            centred *= centred
            np.matmul(weights, centred, out=information[block])
        return mean, information
    _, group, sizes = np.unique(place, return_inverse=True, return_counts=True)
    single = sizes[group] == 1
    several, names = ~single, np.flatnonzero(sizes > 1)
    membership = weights[several] * (group[several] == names[:, None])
    chance = membership.sum(axis=1, keepdims=True)
    roots = membership / np.sqrt(np.maximum(chance, _LEAST_INFORMATION))
    for block in blocks(len(mean), len(weights)):
        centred = rewards[:, block] - mean[block]
        apart, together = centred[single], roots @ centred[several]
        apart *= apart
        together *= together
        information[block] = weights[single] @ apart + together.sum(axis=0)
    return mean, information


def _near_support_line(D: FloatArray, v: FloatArray) -> IntArray:
    """Return the actions that can be part of a minimiser, from `(n_actions,)` arrays.

    The least ratio equals the largest f(x) = min_a x (2 D_a - x v_a) over x >= 0 (quadratic over
    linear is convex; x / 2 is the slope of the support line). f is a minimum of parabolas: below
    its peak the active one rises, above it falls. Two actions bracket the peak, and the next x is
    where their parabolas meet, or the peak of the lower one; each step is one pass over the
    actions.
    """
    D = 2 * D
    left, right = int(D.argmin()), int(v.argmax())
    least, most = D.item(left), v.item(right)
    if least == 0 or most == 0:  # no regret, or no information to gain
        return np.flatnonzero(least == D)
    distance = np.empty_like(D)
    D_l, v_l, D_r, v_r = least, v.item(left), D.item(right), most
    for _ in range(_MOST_STEPS):
        x = min((D_r - D_l) / (v_r - v_l), _peak(D_l, v_l)) if v_r > v_l else _peak(D_l, v_l)
        x = max(x, _peak(D_r, v_r))
        np.multiply(v, x, out=distance)
        np.subtract(D, distance, out=distance)
        place = int(distance.argmin())
        lowest, bound = distance.item(place), min(D_l - x * v_l, D_r - x * v_r)
        if not lowest < bound - 1e-14 * abs(bound):
            break
        D_p, v_p = D.item(place), v.item(place)
        if D_p > 2 * x * v_p:
            D_l, v_l = D_p, v_p
        else:
            D_r, v_r = D_p, v_p
    return np.flatnonzero(distance <= lowest + _NEAR * abs(lowest))


def _peak(D: float, v: float) -> float:
    """Return where x (D - x v) is largest."""
    return 0.5 * D / v if v > 0 else math.inf


def _compared(D: FloatArray, v: FloatArray) -> FloatArray:
    """Return the best mixture of a few actions near the support line, from `(n_near,)` arrays.

    Actions with the same D and v are compared once, with their count. More than `_MOST_POINTS`
    distinct points on one line tie up to rounding: then the points with the smallest and the
    largest v stand for the others.
    """
    if len(D) == 1:
        return np.ones(1)
    if len(D) <= FEW_ACTIONS:
        shares: FloatArray = _all_pairs(D[None], v[None], None)[0]
        return shares
    points, index, counts = np.unique(
        np.stack([v, D]), axis=1, return_inverse=True, return_counts=True
    )
    kept = np.arange(len(counts))  # in the order of v
    if len(kept) > _MOST_POINTS:
        kept = np.concatenate([kept[: _MOST_POINTS // 2], kept[-_MOST_POINTS // 2 :]])
    shares = np.zeros(len(counts))
    multiplicity = counts[kept].astype(np.float64)
    shares[kept] = _all_pairs(points[1:, kept], points[:1, kept], None, multiplicity)[0]
    return (shares / counts)[index.ravel()]


def _unit(values: FloatArray) -> FloatArray:
    """Divide each row by a power of two near its largest value, if any row is far from one.

    The division is exact, and the minimiser stays the same.
    """
    top = values[np.arange(len(values)), values.argmax(axis=1)]
    if top.min() > 1e-100 and top.max() < 1e100:
        return values
    exponent = np.maximum(np.frexp(top)[1], -1000)
    scaled: FloatArray = values * np.ldexp(1.0, -exponent)[:, None]
    return scaled


def _all_pairs(
    regret: FloatArray,
    information: FloatArray,
    eligible: BoolArray | None,
    counts: FloatArray | None = None,
) -> FloatArray:
    """Try every action alone and every pair; `counts` says how many actions a column stands for."""
    D, v = np.ascontiguousarray(regret.T), np.ascontiguousarray(information.T)  # sessions last
    a, b = _pairs(len(D))
    D_a, D_b, v_a, v_b = D[a], D[b], v[a], v[b]
    with np.errstate(all="ignore"):  # v* is undefined for equal regrets or information
        alone = np.minimum(D * D / np.maximum(v, _LEAST_INFORMATION), _LARGEST)
        g = (D_a - D_b) / (v_a - v_b)
        optimum = (D_b * v_a - D_a * v_b) / (D_a - D_b)  # v*, symmetric in a and b
        together = np.where((optimum - v_a) * (optimum - v_b) < 0, 4 * g * g * optimum, np.inf)
    if eligible is not None:
        alone[~eligible.T] = np.inf
        together[~(eligible.T[a] & eligible.T[b])] = np.inf
    least = np.minimum(alone.min(axis=0), together.min(axis=0, initial=np.inf))
    mixture = (alone == least).astype(np.float64)
    if counts is not None:
        mixture *= counts[:, None]
    pair, session = np.nonzero(together == least)
    if len(pair) > 0:
        share = (optimum - v_b)[pair, session] / (v_a - v_b)[pair, session]
        times = np.ones(len(pair)) if counts is None else counts[a[pair]] * counts[b[pair]]
        np.add.at(mixture, (a[pair], session), times * share)
        np.add.at(mixture, (b[pair], session), times * (1 - share))
    distribution: FloatArray = (mixture / mixture.sum(axis=0)).T
    return distribution


@lru_cache(maxsize=_MOST_POINTS)
def _pairs(n: int) -> tuple[IntArray, IntArray]:
    return np.triu_indices(n, 1)


# Posterior scenarios of mean rewards that are a function of the belief alone.
#
# Quasi Monte Carlo: the nodes are fixed by a seed and the same for every session and round. The
# action probabilities that a policy computes from them are then a deterministic and smooth function
# of the belief, so they are exact and can be computed again from the belief.

_KEPT_NUMBERS = 2**21  # nodes of up to 16 MB are cached for the next call
_FEW_NUMBERS = 200  # per session: duplicates among beliefs this small are searched for
_MIDDLE = 0.5


def scenario_rewards(
    model: Model, belief: JointBelief, context: Context, n_draws: int, seed: int
) -> FloatArray:
    """Return `n_draws` mean rewards of all actions for every session: `(n, n_draws, n_actions)`.

    States are drawn by systematic sampling, parameters given the state from nodes of `seed`. The
    draws have equal weights. A session gets the same draws alone as in a batch.

    >>> from latentbandits.beliefs import joint
    >>> from latentbandits.models import GaussianArms
    >>> model = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1)
    >>> draws = scenario_rewards(model, joint.prior(model, 1), None, 400, seed=0)
    >>> draws.mean(axis=1).round(2)
    array([[0.55, 0.45]])
    """
    state = joint.systematic(belief.log_weights, n_draws, _MIDDLE)
    if isinstance(model, FromNormals):
        normals = _normals(seed, n_draws, model.n_normals)
        return model.rewards_from_normals(belief.parameters, context, state, normals)
    if len(state) == 1 or model.n_sessions is not None:
        rng = np.random.default_rng(seed)
        return model.sample_rewards(belief.parameters, context, state, rng)
    distinct, index = _distinct(state, belief.parameters, context)
    parts = []
    for i in distinct:
        learned = map_leaves(lambda leaf, i=i: leaf[i : i + 1], belief.parameters)
        features = None if context is None else context[i : i + 1]
        rng = np.random.default_rng(seed)
        parts.append(model.sample_rewards(learned, features, state[i : i + 1], rng))
    return np.concatenate(parts)[index]


def _distinct(
    state: IntArray, parameters: Parameters, context: Context
) -> tuple[IntArray, IntArray]:
    """Return the indices of distinct sessions, and for each session the place of its equal there.

    Two sessions have the same scenarios if they draw every state equally often and have the same
    parameters, because draws are sorted by state.
    """
    n = len(state)
    times = np.stack([(state == s).sum(axis=1) for s in range(int(state.max()) + 1)], axis=1)
    arrays = [times, *leaves(parameters)]
    if context is not None or sum(array.size for array in arrays) > _FEW_NUMBERS * n:
        return np.arange(n), np.arange(n)
    keys = np.concatenate([array.reshape(n, -1).astype(np.float64) for array in arrays], axis=1)
    _, first, index = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first, index.ravel()


def _normals(seed: int, n_draws: int, width: int) -> FloatArray:
    """Return antithetic standard normals, `(1, n_draws, width)`; neighbours are a pair."""
    small = n_draws * width <= _KEPT_NUMBERS
    return _drawn(seed, n_draws, width) if small else _drawn.__wrapped__(seed, n_draws, width)


@lru_cache(maxsize=4)
def _drawn(seed: int, n_draws: int, width: int) -> FloatArray:
    half = np.random.default_rng(seed).standard_normal(((n_draws + 1) // 2, width))
    pairs = np.stack([half, -half], axis=1).reshape(-1, width)
    return frozen(np.ascontiguousarray(pairs[:n_draws])[None])
