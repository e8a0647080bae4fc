"""Matrix factorisation with posterior distributions of vectors (variational Bayes; Lim & Teh 2007).

    r = mean + b_a + d_u + v_a'u_u + noise,    (v_a, b_a) ~ N(0, diag Q),    (u_u, d_u) ~ N(m, C),

with b and d left out if there are no intercepts. q(vectors) is a Gaussian for each user and each
action; m, C, Q and the noise maximise the bound. Only the rank is left to choose: Q and C are the
regularisation. The posterior of an action with few rewards stays close to its prior. A user's
vector solves

    (C^-1 + sum E[x x'] / s^2) w = C^-1 m + sum E[x (r - o)] / s^2,    x = (v, 1), o = mean + b,

where E[x x'] and E[x o] include the covariance of the action's vector. An action's vector solves
similar equations. These are ridge regressions with expected products instead of products of
features. A pass solves for the users of every partition and returns the actions' equations. The
bound never falls:

    -N/2 (log 2 pi s^2 + 1) - 1/2 (n log |C| - sum log |V_u|) - 1/2 sum (log |Q| - log |V_a|).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.backends.backend import LogEngine
from latentbandits.learning.linear.alternating import (
    CompletionSettings,
    Factors,
    Folded,
    RatingPass,
    Ratings,
    RatingTotals,
    RatingTotalsPass,
    complete_fold,
    joined,
)
from latentbandits.models.checks import BoolArray, FloatArray

SWEEPS = 5
"""Sweeps of regularised least squares with which the factorisation starts."""

PASSES = 30
TOLERANCE = 5e-5
"""The rise of the bound, in nats per reward, below which passes stop."""

_FIRST_REG = 0.05  # of the first sweeps, per reward, in standard deviations of rewards
_DEAD = 0.1  # directions with less energy than this fraction of their own uncertainty are cut
_LEAST = 1e-8  # lower limit of every variance, as a fraction of the rewards' variance


class Uncertain(NamedTuple):
    """The parameters of a pass: q of the actions, the users' prior and the noise."""

    items: Factors
    spread: FloatArray  # (n_actions, d, d): covariances of (v_a, b_a)
    mean: FloatArray  # (d,): m
    covariance: FloatArray  # (d, d): C
    variance: float  # s^2


class ExpectedEquations(NamedTuple):
    """Sums over the entries of every row; sums of disjoint entries add."""

    products: FloatArray  # (n, p): E[x x'] above the diagonal, then, with offsets, E[x o], E[o o]
    targets: FloatArray  # (n, d) or (n, d + 1): r x, then r o


class FactorSums(NamedTuple):
    """The sums of a pass."""

    items: ExpectedEquations
    n_users: float
    total: FloatArray  # (d,)
    outer: FloatArray  # (d, d): E[w w']
    log_volume: float  # sum of log |V_u|


class RowPosteriors(NamedTuple):
    """Gaussian posteriors of many rows."""

    means: FloatArray  # (n, d)
    covariances: FloatArray  # (n, d, d)


class VariationalPass(RatingPass):
    """A pass that computes q of the users given q of the actions, and the actions' equations."""

    threaded = True

    def summarise(self, part: Ratings, current: Uncertain) -> FactorSums:
        users = posterior_of_users(part, current)
        weigh = self.settings.weigh(part.keys)
        rated = part.rated(weigh)
        weights, weighted = _matrices(part, part.weights(weigh))
        user_means, mean = users.means, current.items.mean
        biases = current.items.biases is not None
        sums = ExpectedEquations(
            weights.T @ expected_products(users, mean, biases),
            weighted.T @ _features(user_means, mean, biases),
        )
        outer = user_means.T @ (rated[:, None] * user_means) + np.tensordot(
            rated, users.covariances, axes=1
        )
        volumes = np.linalg.slogdet(users.covariances)[1]
        return FactorSums(
            sums, float(rated.sum()), rated @ user_means, outer, float(rated @ volumes)
        )


def factorise(
    engine: LogEngine,
    settings: CompletionSettings,
    *,
    passes: int = PASSES,
    start: Uncertain | None = None,
) -> Folded:
    """Factorise the matrix of a log on any engine.

    In the result the users' vectors have unit covariance, and `uncertain` holds the parameters of
    their posterior. `start` is the result of another factorisation of the same rank.
    """
    totals = engine.fold(RatingTotalsPass(settings), None)
    current = _first(engine, settings, totals) if start is None else start
    bounds: list[float] = []
    n = float(totals.counts.sum())
    for _ in range(passes):
        sums = engine.fold(VariationalPass(settings), current)
        current, bound = step(sums, current, totals)
        bounds.append(bound)
        if len(bounds) > 1 and bound - bounds[-2] < TOLERANCE * n:
            break
        current = aligned(current, totals.counts > 0)
    white = whitened(without_dead(current, totals.counts))
    rank = white.items.vectors.shape[1]
    return Folded(
        engine,
        replace(settings, rank=rank),
        white.items,
        white.items,
        white.mean[:rank],
        totals.counts.round().astype(np.int64),
        math.sqrt(white.variance),
        (),
        white,
        tuple(bounds),
    )


def step(sums: FactorSums, current: Uncertain, totals: RatingTotals) -> tuple[Uncertain, float]:
    """Return the parameters that maximise the bound given the sums of a pass, and the bound."""
    d = len(current.mean)
    biases = current.items.biases is not None
    rated = totals.counts > 0
    n, least = float(totals.counts.sum()), _least(totals)
    mean = sums.total / sums.n_users
    covariance = sums.outer / sums.n_users - np.outer(mean, mean)
    before = joined(current.items)
    second = before**2 + np.einsum("nii->ni", current.spread)
    prior = np.maximum(second[rated].mean(axis=0), least)
    gram, target = _system(sums.items, d, biases)
    precision = gram / current.variance
    precision[:, np.arange(d), np.arange(d)] += 1 / prior
    spread = np.linalg.inv(precision).astype(np.float64, copy=False)
    z = np.einsum("nij,nj->ni", spread, target) / current.variance
    quadratic = np.einsum("nij,nij->", gram, z[:, :, None] * z[:, None, :] + spread)
    squares = totals.squares + totals.scatter + float(quadratic - 2 * (z * target).sum())
    if biases:
        squares += float((sums.items.products[:, -1] - 2 * sums.items.targets[:, -1]).sum())
    variance = max(squares / n, least)
    items = Factors.of_columns(z, biases, current.items.mean)
    posterior = Uncertain(items, spread, mean, covariance, variance)
    # The bound at the current q, with the m, C, Q and noise that maximise it.
    second_moments = np.maximum((z**2 + np.einsum("nii->ni", spread))[rated].mean(axis=0), least)
    bound = -0.5 * n * (math.log(2 * math.pi * variance) + 1)
    bound -= 0.5 * (sums.n_users * float(np.linalg.slogdet(covariance)[1]) - sums.log_volume)
    volumes = float(np.linalg.slogdet(spread[rated])[1].sum())
    bound -= 0.5 * (int(rated.sum()) * float(np.log(second_moments).sum()) - volumes)
    return posterior, bound


def posterior_of_users(part: Ratings, current: Uncertain) -> RowPosteriors:
    """Return q of the users of a partition."""
    items, biases = current.items, current.items.biases is not None
    means = joined(items)
    actions = RowPosteriors(means, current.spread)
    weights, weighted = _matrices(part, part.weights(None))
    sums = ExpectedEquations(
        weights @ expected_products(actions, items.mean, biases),
        weighted @ _features(means, items.mean, biases),
    )
    gram, target = _system(sums, len(current.mean), biases)
    prior = np.linalg.inv(current.covariance)
    covariances = np.linalg.inv(gram / current.variance + prior)
    right = target / current.variance + prior @ current.mean
    return RowPosteriors(np.einsum("nij,nj->ni", covariances, right), covariances)


def expected_products(rows: RowPosteriors, mean: float, biases: bool) -> FloatArray:
    """Return E[products] of the other side's features (vector, 1) and offsets mean + intercept."""
    x, spread = rows.means, rows.covariances
    if not biases:
        above = np.triu_indices(x.shape[1])
        return x[:, above[0]] * x[:, above[1]] + spread[:, above[0], above[1]]
    rank = x.shape[1] - 1
    with_one, offset = _with_one(x[:, :rank]), x[:, rank:] + mean
    row, column = np.triu_indices(rank + 1)
    products = np.concatenate(
        [with_one[:, row] * with_one[:, column], with_one * offset, offset**2], axis=1
    )
    inner = (row < rank) & (column < rank)
    products[:, np.flatnonzero(inner)] += spread[:, row[inner], column[inner]]
    products[:, len(row) : len(row) + rank] += spread[:, :rank, rank]
    products[:, -1] += spread[:, rank, rank]
    return products


def aligned(current: Uncertain, rated: BoolArray) -> Uncertain:
    """Return the same factorisation in the coordinates in which its bound is highest.

    v'u + b + d stays the same for any R, t, c and k if

        v -> R'(v - t),   b -> b - k - c'(v - t),   u -> R'(u + c),   d -> d + k + t'u

    with orthogonal R. C is free, so only the actions' prior diag Q notices: log |Q| is least if
    actions have mean zero and uncorrelated coordinates. Without this, passes turn towards these
    coordinates slowly. Without intercepts there is only R.
    """
    y, rank = joined(current.items), current.items.vectors.shape[1]
    d = len(current.mean)
    centre, slope = np.zeros(d), np.zeros(rank)
    if d > rank:
        centre = y[rated].mean(axis=0)
    away = y - centre
    moments = away[rated].T @ away[rated] + current.spread[rated].sum(axis=0)
    axes = np.linalg.eigh(moments[:rank, :rank])[1]
    of_actions, of_users, shift = np.eye(d), np.eye(d), np.zeros(d)
    of_actions[:rank, :rank] = of_users[:rank, :rank] = axes.T
    if d > rank:
        slope = np.linalg.lstsq(moments[:rank, :rank], moments[:rank, rank], rcond=None)[0]
        of_actions[rank, :rank] = -slope
        of_users[rank, :rank] = centre[:rank]
        shift[:rank], shift[rank] = axes.T @ slope, centre[rank]
    z = away @ of_actions.T
    return Uncertain(
        Factors.of_columns(z, d > rank, current.items.mean),
        of_actions @ current.spread @ of_actions.T,
        of_users @ current.mean + shift,
        of_users @ current.covariance @ of_users.T,
        current.variance,
    )


def without_dead(current: Uncertain, counts: FloatArray) -> Uncertain:
    """Return the factorisation without the directions that the data do not hold.

    If the rank is higher than the log supports, the bound drives surplus directions of the actions'
    vectors towards zero. A direction is cut if its energy sum_a n_a (v_a'r)^2 is below `_DEAD`
    times the energy of its posterior variance, sum_a n_a r'V_a r. Directions are principal axes
    after users are scaled to unit second moment. At least one is kept.
    """
    rank, d = current.items.vectors.shape[1], len(current.mean)
    tastes = current.mean[:rank]
    values, axes = np.linalg.eigh(current.covariance[:rank, :rank] + np.outer(tastes, tastes))
    to_actions = axes * np.sqrt(values)
    to_users = axes / np.sqrt(values)
    moved = current.items.vectors @ to_actions
    energy, turn = np.linalg.eigh(moved.T @ (counts[:, None] * moved))
    to_actions, to_users = to_actions @ turn, to_users @ turn
    spread = np.tensordot(counts, current.spread[:, :rank, :rank], axes=1)
    uncertainty = np.einsum("ik,ij,jk->k", to_actions, spread, to_actions)
    alive = energy >= _DEAD * uncertainty
    alive[-1] = True  # the axis of the largest energy
    if alive.all():
        return current
    kept = np.flatnonzero(alive)
    change_actions, change_users = (
        np.concatenate([np.pad(to[:, kept].T, ((0, 0), (0, d - rank))), np.eye(d)[rank:]])
        for to in (to_actions, to_users)
    )
    return Uncertain(
        current.items._replace(vectors=current.items.vectors @ to_actions[:, kept]),
        change_actions @ current.spread @ change_actions.T,
        change_users @ current.mean,
        change_users @ current.covariance @ change_users.T,
        current.variance,
    )


def whitened(current: Uncertain) -> Uncertain:
    """Return the same factorisation with users' vectors scaled to unit covariance."""
    rank = current.items.vectors.shape[1]
    values, axes = np.linalg.eigh(current.covariance[:rank, :rank])
    root = axes * np.sqrt(values) @ axes.T
    shrink = np.eye(len(current.mean))
    shrink[:rank, :rank] = axes / np.sqrt(values) @ axes.T
    grow = np.eye(len(current.mean))
    grow[:rank, :rank] = root
    return Uncertain(
        current.items._replace(vectors=current.items.vectors @ root),
        grow @ current.spread @ grow,
        shrink @ current.mean,
        shrink @ current.covariance @ shrink,
        current.variance,
    )


def _first(engine: LogEngine, settings: CompletionSettings, totals: RatingTotals) -> Uncertain:
    """Return the result of a few least squares sweeps, with zero covariance of the actions."""
    n = float(totals.counts.sum())
    deviation = math.sqrt(_variance(totals))
    plain = replace(
        settings, reg=_FIRST_REG * (deviation or 1.0), weighting="counts", sweeps=SWEEPS
    )
    folded = complete_fold(engine, plain)
    items = folded.items
    d = settings.rank + settings.biases
    scale = float((totals.counts @ items.vectors**2).mean() / n)  # both sides are balanced
    covariance = np.diag(np.full(d, scale + _least(totals)))
    mean = np.zeros(d)
    mean[: settings.rank] = folded.centre
    if settings.biases:
        covariance[-1, -1] = max(0.2 * deviation**2, _least(totals))
    variance = max(folded.noise**2, _least(totals))
    return Uncertain(items, np.zeros((engine.n_actions, d, d)), mean, covariance, variance)


def _system(sums: ExpectedEquations, d: int, biases: bool) -> tuple[FloatArray, FloatArray]:
    """Return Gram matrices `(n, d, d)` and right-hand sides `(n, d)`, minus the known offsets."""
    target = sums.targets[:, :d]
    if biases:
        target = target - sums.products[:, -d - 1 : -1]
    gram = np.empty((len(target), d, d))
    row, column = np.triu_indices(d)
    gram[:, row, column] = gram[:, column, row] = sums.products[:, : len(row)]
    return gram, target


def _matrices(part: Ratings, weights: FloatArray) -> tuple[Any, Any]:
    """Return weights and weighted rewards as sparse matrices, users x actions."""
    from scipy.sparse import csr_array

    starts = np.searchsorted(part.users, np.arange(part.shape[0] + 1))
    first, second = (
        csr_array((values, part.actions, starts), shape=part.shape)
        for values in (weights, weights * part.means)
    )
    return first, second


def _features(x: FloatArray, mean: float, biases: bool) -> FloatArray:
    return np.column_stack([_with_one(x[:, :-1]), x[:, -1] + mean]) if biases else x


def _with_one(values: FloatArray) -> FloatArray:
    return np.column_stack([values, np.ones(len(values))])


def _variance(totals: RatingTotals) -> float:
    n = float(totals.counts.sum())
    return max((totals.squares + totals.scatter) / n - (totals.rewards / n) ** 2, 0.0)


def _least(totals: RatingTotals) -> float:
    return _LEAST * (_variance(totals) or 1.0)
