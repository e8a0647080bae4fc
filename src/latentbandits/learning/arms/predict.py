"""One-step-ahead predictions of held-out rewards of arms, for all events of all users at once.

Before every reward, the predictive distribution given the user's earlier rewards is computed: a
mixture over states, with each state weighted by its evidence so far. The sufficient statistics of
a user's earlier rewards for the same action are cumulative sums over the events of the pair, so no
loop over rounds is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.logs.rows import Log
from latentbandits.models.arms.bernoulli import BernoulliArms
from latentbandits.models.arms.categorical import CategoricalArms
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.exponential import ExponentialArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.arms.gaussian_unknown_noise import GaussianArmsUnknownNoise
from latentbandits.models.arms.poisson import PoissonArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.blocks import log_normal_density
from latentbandits.models.numerics.log_weights import log_sum

Edges = tuple[FloatArray, FloatArray]
Tails = tuple[FloatArray, FloatArray, FloatArray | None]
"""P(reward < r), P(reward <= r), and the probability of the reward's cell."""


class Predicted(NamedTuple):
    """Predictions with one entry per judged event of a log, in the order of the log."""

    log_density: FloatArray  # log predictive density of the reward given the user's earlier ones
    mean: FloatArray  # predictive mean
    below: FloatArray  # predictive P(reward < r)
    up_to: FloatArray  # predictive P(reward <= r)
    log_cell: FloatArray | None  # log probability of the reward's cell, if there are cells


class ByState(NamedTuple):
    """Predictions given each state, `(n, n_states)`; `variance` is that of the mean reward."""

    log_density: FloatArray
    mean: FloatArray
    variance: FloatArray
    below: FloatArray
    up_to: FloatArray
    cell: FloatArray | None


def predict(
    model: GaussianArms | ConjugateArms,
    log: Log,
    edges: Edges | None = None,
    moments: Callable[[FloatArray, FloatArray, IntArray], FloatArray] | None = None,
) -> Predicted:
    """Predict every reward of `log` (n events) under `model`.

    With `edges`, the lower and upper edges of each reward's cell, `log_cell` is the log probability
    of the cell; for discrete families, of the reward itself. `moments(mean, variance, action)` maps
    the mean and variance of a mean reward to a prediction; by default the prediction is the mean.
    """
    by_state = _by_state(model, log, edges)
    weights = _weights(model, log, by_state.log_density)
    before = np.exp(weights)

    def mixed(values: FloatArray) -> FloatArray:
        average: FloatArray = (before * values).sum(axis=1)
        return average

    mean = by_state.mean
    if moments is not None:
        mean = moments(mean, by_state.variance, log.actions)
    log_cell = None
    if by_state.cell is not None:
        log_cell = np.log(np.maximum(mixed(by_state.cell), 1e-300))
    return Predicted(
        log_sum(weights + by_state.log_density),
        mixed(mean),
        mixed(by_state.below),
        mixed(by_state.up_to),
        log_cell,
    )


def _weights(model: GaussianArms | ConjugateArms, log: Log, log_density: FloatArray) -> FloatArray:
    """Return log P(s | the user's earlier rewards) before every event, `(n, n_states)`."""
    summed = np.cumsum(log_density, axis=0)
    before = summed - log_density
    start = before[log.starts[log.users]]
    weights = before - start + model.log_state_prior
    normalised: FloatArray = weights - log_sum(weights)[:, None]
    return normalised


def _by_state(model: GaussianArms | ConjugateArms, log: Log, edges: Edges | None) -> ByState:
    if isinstance(model, GaussianArms):
        return _gaussian(model, log, edges)
    rewards = np.asarray(log.rewards)
    log_density = log_density_by_state(model, log, rewards)
    earlier = _earlier(log, model.statistic(rewards))
    prior = model.prior_hyperparameters[0][:, log.actions].swapaxes(0, 1)  # (n, S, K)
    phi = prior + earlier[:, None]
    tails = _DISTRIBUTIONS[type(model)](model, phi, rewards[:, None], edges)
    mean, variance = model.moments(phi)
    return ByState(log_density, mean, variance, *tails)


def log_density_by_state(
    model: GaussianArms | ConjugateArms, log: Log, rewards: FloatArray
) -> FloatArray:
    """Return the log density of every reward given the user's earlier ones, `(n, n_states)`."""
    seen = replace(log, rewards=rewards)
    if isinstance(model, GaussianArms):
        return _gaussian(model, seen, None).log_density
    model.check_reward(rewards)
    statistic = model.statistic(rewards)
    earlier = _earlier(log, statistic)
    prior = model.prior_hyperparameters[0][:, log.actions].swapaxes(0, 1)
    log_density = model.log_normaliser_step(prior, earlier[:, None], statistic[:, None])
    base = model.log_base_measure(rewards)
    return log_density + (base if isinstance(base, float) else base[:, None])


def _earlier(log: Log, values: FloatArray) -> FloatArray:
    """Return the sums of `values` (n, K) over the earlier events of the same user and action."""
    pair = log.users * log.n_actions + log.actions
    order = np.argsort(pair, kind="stable")
    ordered = values[order]
    before = np.cumsum(ordered, axis=0) - ordered
    new = np.append(True, np.diff(pair[order]) != 0)
    first = np.maximum.accumulate(np.where(new, np.arange(len(pair)), 0))
    earlier = np.empty_like(before)
    earlier[order] = before - before[first]
    return earlier


def _gaussian(model: GaussianArms, log: Log, edges: Edges | None) -> ByState:
    rewards = np.asarray(log.rewards)
    shift = rewards.mean()  # centred sums lose fewer digits
    values = np.stack([np.ones(len(rewards)), rewards - shift], axis=1)
    count, total = (column[:, None] for column in _earlier(log, values).T)
    prior_mean = model.means[:, log.actions].T - shift
    prior_variance = model.spread[:, log.actions].T ** 2
    scale = prior_variance / (prior_variance * count + model.noise**2)
    mean = prior_mean + scale * (total - count * prior_mean) + shift
    variance = scale * model.noise**2
    deviation = np.sqrt(variance + model.noise**2)
    tails = _symmetric(_normal, rewards[:, None], mean, deviation, edges)
    log_density = log_normal_density(rewards[:, None] - mean, deviation**2)
    return ByState(log_density, mean, variance, *tails)


def _normal(z: FloatArray) -> FloatArray:
    from scipy.special import ndtr

    probability: FloatArray = ndtr(z)
    return probability


def _symmetric(
    distribution: Callable[[FloatArray], FloatArray],
    rewards: FloatArray,
    mean: FloatArray,
    deviation: FloatArray,
    edges: Edges | None,
) -> Tails:
    """Return the tails of a symmetric location-scale family, using the nearer tail for cells."""
    up_to = distribution((rewards - mean) / deviation)
    if edges is None:
        return up_to, up_to, None
    lower, upper = ((edge[:, None] - mean) / deviation for edge in edges)
    mirrored = lower + upper > 0
    low, high = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    return up_to, up_to, distribution(high) - distribution(low)


def _student(model: Any, phi: FloatArray, rewards: FloatArray, edges: Edges | None) -> Tails:
    from scipy.special import stdtr

    mean = model.moments(phi)[0]
    freedom = phi[..., 3]
    scale = np.sqrt(phi[..., 0] * model.moments(phi)[1] * (freedom - 2) / freedom)
    scale = scale * np.sqrt(1 + 1 / phi[..., 0])
    return _symmetric(lambda z: stdtr(freedom, z), rewards, mean, scale, edges)


def _lomax(model: Any, phi: FloatArray, rewards: FloatArray, edges: Edges | None) -> Tails:
    shape, scale = phi[..., 0], phi[..., 1]

    def survival(r: FloatArray) -> FloatArray:
        survived: FloatArray = np.exp(-shape * np.log1p(np.maximum(r, 0.0) / scale))
        return survived

    up_to = 1 - survival(rewards)
    if edges is None:
        return up_to, up_to, None
    lower, upper = edges
    return up_to, up_to, survival(lower[:, None]) - survival(upper[:, None])


def _negative_binomial(
    model: Any, phi: FloatArray, rewards: FloatArray, edges: Edges | None
) -> Tails:
    from scipy.special import betainc

    shape, share = phi[..., 0], phi[..., 1] / (phi[..., 1] + 1)
    up_to = np.asarray(betainc(shape, rewards + 1, share), np.float64)
    below = np.where(rewards > 0, betainc(shape, np.maximum(rewards, 1e-300), share), 0.0)
    return below, up_to, up_to - below


def _dirichlet(model: Any, phi: FloatArray, rewards: FloatArray, edges: Edges | None) -> Tails:
    probabilities = phi / phi.sum(axis=-1, keepdims=True)
    if isinstance(model, BernoulliArms):
        zero = probabilities[..., 1]
        below = np.where(rewards == 1, zero, 0.0)
        up_to = np.where(rewards == 1, 1.0, zero)
        return below, up_to, up_to - below
    upper = probabilities.cumsum(axis=-1)
    which: IntArray = model.values.searchsorted(rewards)
    index = np.broadcast_to(which, phi.shape[:-1])[..., None]
    up_to = np.take_along_axis(upper, index, axis=-1)[..., 0]
    chance = np.take_along_axis(probabilities, index, axis=-1)[..., 0]
    return up_to - chance, up_to, chance


_DISTRIBUTIONS: Mapping[type[ConjugateArms], Callable[..., Tails]] = {
    BernoulliArms: _dirichlet,
    CategoricalArms: _dirichlet,
    PoissonArms: _negative_binomial,
    ExponentialArms: _lomax,
    GaussianArmsUnknownNoise: _student,
}
