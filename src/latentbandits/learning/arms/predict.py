"""One-step-ahead predictions of held-out rewards of arms, for all events of all users at once.

Before every reward, the predictive distribution given the user's earlier rewards is computed: a
mixture over states, with each state weighted by its evidence so far. The sufficient statistics of
a user's earlier rewards for the same action are cumulative sums over the events of the pair, so no
loop over rounds is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from latentbandits.learning.logs.rows import Log
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.arrays import log_normal_density, log_sum

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
    log_actions: FloatArray | None = None,
) -> Predicted:
    """Predict every reward of `log` (n events) under `model`.

    With `edges`, the lower and upper edges of each reward's cell, `log_cell` is the log probability
    of the cell; for discrete families, of the reward itself. `moments(mean, variance, action)` maps
    the mean and variance of a mean reward to a prediction; by default the prediction is the mean.
    With `log_actions` (n_states, n_actions), the log probabilities of actions in each state, the
    user's actions tell about the state as well, that of the event included.
    """
    by_state = _by_state(model, log, edges)
    chosen = None if log_actions is None else log_actions[:, log.actions].T
    weights = _weights(model, log, by_state.log_density, chosen)
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


def _weights(
    model: GaussianArms | ConjugateArms,
    log: Log,
    log_density: FloatArray,
    log_chosen: FloatArray | None,
) -> FloatArray:
    """Return log P(s | the user's earlier rewards) before every event, `(n, n_states)`.

    With `log_chosen`, the log probability of every event's action, P is given the actions too.
    """
    known = log_density if log_chosen is None else log_density + log_chosen
    before = np.cumsum(known, axis=0) - known
    start = before[log.starts[log.users]]
    weights = before - start + model.log_state_prior
    if log_chosen is not None:
        weights = weights + log_chosen
    return weights - log_sum(weights)[:, None]


def _by_state(model: GaussianArms | ConjugateArms, log: Log, edges: Edges | None) -> ByState:
    if isinstance(model, GaussianArms):
        return _gaussian(model, log, edges)
    log_density = log_density_by_state(model, log, np.asarray(log.rewards))
    rewards = model.outcomes(np.asarray(log.rewards), log.positions)
    phi = _prior_of_events(model, log) + _earlier(log, model.statistic(rewards))[:, None]
    chance = np.where(model.atoms(rewards)[:, None], np.exp(log_density), 0.0)
    tails = _tails(chance, lambda r: model.distribution(phi, r), rewards, edges)
    mean, variance = model.moments(phi)
    return ByState(log_density, mean, variance, *tails)


def _prior_of_events(model: ConjugateArms, log: Log) -> FloatArray:
    """Return phi of the prior of every event's action, `(n, n_states, n_statistics)`."""
    prior: FloatArray = model.prior_hyperparameters[0][:, log.actions].swapaxes(0, 1)
    return prior


def log_density_by_state(
    model: GaussianArms | ConjugateArms, log: Log, rewards: FloatArray
) -> FloatArray:
    """Return the log density of every reward given the user's earlier ones, `(n, n_states)`."""
    seen = replace(log, rewards=rewards)
    if isinstance(model, GaussianArms):
        return _gaussian(model, seen, None).log_density
    model.check_reward(rewards)
    rewards = model.outcomes(rewards, log.positions)
    statistic = model.statistic(rewards)
    earlier = _earlier(log, statistic)[:, None]
    prior = _prior_of_events(model, log)
    log_density = model.log_normaliser_step(prior, earlier, statistic[:, None])
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

    def distribution(r: FloatArray) -> tuple[FloatArray, FloatArray]:
        from scipy.special import ndtr

        z = (r - mean) / deviation
        return ndtr(z), ndtr(-z)

    tails = _tails(None, distribution, rewards, edges)
    log_density = log_normal_density(rewards[:, None] - mean, deviation**2)
    return ByState(log_density, mean, variance, *tails)


def _tails(
    chance: FloatArray | None,
    distribution: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    rewards: FloatArray,
    edges: Edges | None,
) -> Tails:
    """Return the tails, from P(R <= r) and P(R > r) given each state.

    `chance` (n, n_states) is the probability of the reward itself, 0 where it has a density; None
    if all have.
    """
    up_to, _ = distribution(rewards[:, None])
    below = up_to if chance is None else np.maximum(up_to - chance, 0.0)
    if edges is None:
        return below, up_to, None
    cell = in_cells(distribution, edges)
    return below, up_to, cell if chance is None else np.maximum(cell, chance)


def in_cells(
    distribution: Callable[[FloatArray], tuple[FloatArray, FloatArray]], edges: Edges
) -> FloatArray:
    """Return the probability of every cell given each state, from P(R <= r) and P(R > r).

    It is the difference in the thinner tail, which loses no digits.
    """
    (low, above_low), (high, above_high) = (distribution(edge[:, None]) for edge in edges)
    return np.where(low + high > 1, above_low - above_high, high - low)
