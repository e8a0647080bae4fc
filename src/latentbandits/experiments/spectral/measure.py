"""One generated log, from which four methods learn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.report.estimate import Estimate

if TYPE_CHECKING:
    from latentbandits.learning.generate_arms import KnownArms

METHODS = ("moments", "spectral", "em", "labels known")


class Job(NamedTuple):
    n_users: int
    seed: int


class Outcome(NamedTuple):
    """Root mean square errors, one for each of METHODS."""

    n_users: int
    seed: int
    means: tuple[float, ...]
    shares: tuple[float, ...]


def measure(job: Job) -> Outcome:
    from latentbandits.learning.generate_arms import generate_arms
    from latentbandits.learning.mixture import fit_mixture
    from latentbandits.learning.spectral import decompose, fit_spectral, moments

    truth = generate_arms(n_users=job.n_users, seed=job.seed)
    n_states = len(truth.shares)
    raw = decompose(moments(truth.log), n_states, seed=job.seed)
    spectral = fit_spectral(truth.log, n_states, seed=job.seed)
    em = fit_mixture(truth.log, n_states, seed=job.seed)
    start = (
        (raw.means, raw.shares),
        (spectral.fitted.means, spectral.model.state_prior),
        (em.fitted.means, em.model.state_prior),
        (truth.labelled_means(), np.bincount(truth.state, minlength=n_states) / job.n_users),
    )
    errors = [_errors(means, shares, truth) for means, shares in start]
    of_means, of_shares = zip(*errors, strict=True)
    return Outcome(job.n_users, job.seed, of_means, of_shares)


def slope(n_users: FloatArray, errors: FloatArray, truth: IntArray) -> Estimate:
    """Return the power of n with which errors fall, by least squares on their logarithms.

    Each `truth` has its own intercept, because some truths are harder than others.

    >>> users, truth = np.array([1.0, 4.0, 1.0, 4.0]), np.array([0, 0, 1, 1])
    >>> print(f"{slope(users, np.array([2.0, 1.0, 8.0, 4.0]), truth).mean:.3f}")
    -0.500
    """
    x, y = _within(np.log(n_users), truth), _within(np.log(errors), truth)
    power = float(x @ y / (x @ x))
    residual = y - power * x
    freedom = max(len(x) - len(np.unique(truth)) - 1, 1)
    return Estimate(power, math.sqrt(float(residual @ residual) / freedom / float(x @ x)))


def _within(values: FloatArray, group: IntArray) -> FloatArray:
    """Return the values minus the mean of their group."""
    _, index = np.unique(group, return_inverse=True)
    centred: FloatArray = values - (np.bincount(index, values) / np.bincount(index))[index]
    return centred


def _errors(means: FloatArray, shares: FloatArray, truth: KnownArms) -> tuple[float, float]:
    from latentbandits.learning.alignment import align

    order = align(means, truth.means)
    return (
        float(np.sqrt(np.mean((means[order] - truth.means) ** 2))),
        float(np.sqrt(np.mean((shares[order] - truth.shares) ** 2))),
    )
