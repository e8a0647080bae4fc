"""Held-out rewards of arms, predicted one by one: all events of all users in one computation.

Before every reward the model states its predictive distribution given the user's earlier ones:
a mixture over states, each state weighted by the evidence so far. What a user's earlier rewards
for the same action add up to is a cumulative sum over the events of the pair, so no loop over
rounds is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.logs import Log
from latentbandits.models.arms.bernoulli import BernoulliArms
from latentbandits.models.arms.categorical import CategoricalArms
from latentbandits.models.arms.conjugate import ConjugateArms
from latentbandits.models.arms.exponential import ExponentialArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.arms.gaussian_unknown_noise import GaussianArmsUnknownNoise
from latentbandits.models.arms.poisson import PoissonArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.numerics.normal import log_normal_density


class Predicted(NamedTuple):
    """One entry per judged event of a log, in the order of the log."""

    log_density: FloatArray  # of the reward given the user's earlier ones
    mean: FloatArray  # predictive mean
    below: FloatArray  # predictive P(reward < r)
    up_to: FloatArray  # predictive P(reward <= r)
    cell: FloatArray | None  # predictive probability of the reward's cell of a lattice


def predict(model: GaussianArms | ConjugateArms, log: Log, lattice: float | None = None
            ) -> Predicted:  # fmt: skip
    """Predict every reward of `log` (n events) under `model`.

    With `lattice` h, `cell` is the probability of [r - h / 2, r + h / 2], for rewards that are
    multiples of h; for discrete families that of r itself.
    """
    by_state = _by_state(model, log, lattice)
    weights = _weights(model, log, by_state.log_density)
    before = np.exp(weights)
    log_density = _log_sum(weights + by_state.log_density)

    def mixed(values: FloatArray) -> FloatArray:
        average: FloatArray = (before * values).sum(axis=1)
        return average

    cell = None if by_state.cell is None else mixed(by_state.cell)
    return Predicted(
        log_density,
        mixed(by_state.mean),
        mixed(by_state.below),
        mixed(by_state.up_to),
        cell,
    )


def lattice_of(rewards: FloatArray) -> float | None:
    """Return the step of the lattice that rewards lie on (1, 1/2, 1/10, ...), None if on none.

    >>> lattice_of(np.array([1.0, 3.5, 2.0])), lattice_of(np.array([0.123456]))
    (0.5, None)
    """
    for step in (100.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.25, 0.2, 0.1, 0.05, 0.01):
        units = rewards / step
        if np.abs(units - np.round(units)).max() < 1e-6:
            return step
    return None


def _weights(model: GaussianArms | ConjugateArms, log: Log, log_density: FloatArray) -> FloatArray:
    """Log P(s | the user's earlier rewards) before every event, `(n, n_states)`."""
    summed = np.cumsum(log_density, axis=0)
    before = summed - log_density
    start = before[log.starts[log.users]]
    weights = before - start + model.log_state_prior
    normalised: FloatArray = weights - _log_sum(weights)[:, None]
    return normalised


def _log_sum(values: FloatArray) -> FloatArray:
    top = values.max(axis=1)
    total: FloatArray = top + np.log(np.exp(values - top[:, None]).sum(axis=1))
    return total


def _by_state(model: GaussianArms | ConjugateArms, log: Log, lattice: float | None) -> Predicted:
    """The same given each state: arrays `(n, n_states)`."""
    if isinstance(model, GaussianArms):
        return _gaussian(model, log, lattice)
    rewards = np.asarray(log.rewards)
    model.check_reward(rewards)
    statistic = model.statistic(rewards)
    earlier = _earlier(log, statistic)
    prior = model.prior_hyperparameters[0][:, log.actions].swapaxes(0, 1)  # (n, S, K)
    log_density = model.log_normaliser_step(prior, earlier[:, None], statistic[:, None])
    base = model.log_base_measure(rewards)
    log_density = log_density + (base if isinstance(base, float) else base[:, None])
    phi = prior + earlier[:, None]
    below, up_to, cell = _DISTRIBUTIONS[type(model)](model, phi, rewards[:, None], lattice)
    return Predicted(log_density, model.moments(phi)[0], below, up_to, cell)


def _earlier(log: Log, values: FloatArray) -> FloatArray:
    """Sums of `values` (n, K) over the earlier events of the same user and action."""
    pair = log.users * log.n_actions + log.actions
    order = np.argsort(pair, kind="stable")
    own = values[order]
    before = np.cumsum(own, axis=0) - own
    new = np.append(True, np.diff(pair[order]) != 0)
    first = np.maximum.accumulate(np.where(new, np.arange(len(pair)), 0))
    earlier = np.empty_like(before)
    earlier[order] = before - before[first]
    return earlier


def _gaussian(model: GaussianArms, log: Log, lattice: float | None) -> Predicted:
    rewards = np.asarray(log.rewards)
    shift = rewards.mean()  # sums of small numbers keep their digits
    values = np.stack([np.ones(len(rewards)), rewards - shift], axis=1)
    count, total = (column[:, None] for column in _earlier(log, values).T)
    prior_mean = model.means[:, log.actions].T - shift
    prior_variance = model.spread[:, log.actions].T ** 2
    scale = prior_variance / (prior_variance * count + model.noise**2)
    mean = prior_mean + scale * (total - count * prior_mean) + shift
    variance = scale * model.noise**2 + model.noise**2
    error = rewards[:, None] - mean
    deviation = np.sqrt(variance)
    below, up_to, cell = _continuous(_normal, error, deviation, lattice)
    return Predicted(log_normal_density(error, variance), mean, below, up_to, cell)


Tails = tuple[FloatArray, FloatArray, FloatArray | None]


def _normal(z: FloatArray) -> FloatArray:
    from scipy.special import ndtr

    probability: FloatArray = ndtr(z)
    return probability


def _continuous(
    distribution: Callable[[FloatArray], FloatArray],
    error: FloatArray,
    deviation: FloatArray,
    lattice: float | None,
) -> Tails:
    """Tails of a symmetric location-scale family; the cell is taken in the nearer tail."""
    up_to = distribution(error / deviation)
    if lattice is None:
        return up_to, up_to, None
    distance = np.abs(error)
    near = distribution(-(distance - lattice / 2) / deviation)
    far = distribution(-(distance + lattice / 2) / deviation)
    return up_to, up_to, near - far


def _student(model: Any, phi: FloatArray, rewards: FloatArray, lattice: float | None) -> Tails:
    from scipy.special import stdtr

    mean = model.moments(phi)[0]
    freedom = phi[..., 3]
    scale = np.sqrt(phi[..., 0] * model.moments(phi)[1] * (freedom - 2) / freedom)
    scale = scale * np.sqrt(1 + 1 / phi[..., 0])
    return _continuous(lambda z: stdtr(freedom, z), rewards - mean, scale, lattice)


def _lomax(model: Any, phi: FloatArray, rewards: FloatArray, lattice: float | None) -> Tails:
    shape, scale = phi[..., 0], phi[..., 1]

    def survival(r: FloatArray) -> FloatArray:
        survived: FloatArray = np.exp(-shape * np.log1p(np.maximum(r, 0.0) / scale))
        return survived

    up_to = 1 - survival(rewards)
    if lattice is None:
        return up_to, up_to, None
    return up_to, up_to, survival(rewards - lattice / 2) - survival(rewards + lattice / 2)


def _negative_binomial(
    model: Any, phi: FloatArray, rewards: FloatArray, lattice: float | None
) -> Tails:
    from scipy.special import betainc

    shape, share = phi[..., 0], phi[..., 1] / (phi[..., 1] + 1)
    up_to = np.asarray(betainc(shape, rewards + 1, share), np.float64)
    below = np.where(rewards > 0, betainc(shape, np.maximum(rewards, 1e-300), share), 0.0)
    return below, up_to, up_to - below


def _dirichlet(model: Any, phi: FloatArray, rewards: FloatArray, lattice: float | None) -> Tails:
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
    own = np.take_along_axis(probabilities, index, axis=-1)[..., 0]
    return up_to - own, up_to, own


_DISTRIBUTIONS: Mapping[type[ConjugateArms], Callable[..., Tails]] = {
    BernoulliArms: _dirichlet,
    CategoricalArms: _dirichlet,
    PoissonArms: _negative_binomial,
    ExponentialArms: _lomax,
    GaussianArmsUnknownNoise: _student,
}
