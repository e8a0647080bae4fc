"""Held-out clicks under a logistic-linear model, with Gaussian beliefs instead of particles.

Choosing a rank and a number of states scores thousands of users many times; the particle filter of
the service is too slow for that. Here each state's posterior stays normal: a click is replaced by
a normal observation with the same mode and curvature along x (Laplace), so an update has rank one,
as in the Gaussian model. `tests/unit/test_clicks.py` compares it with quadrature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.logistic import LogisticLinear

_NEWTON_STEPS = 5


class ClickBelief(NamedTuple):
    """N(mean, factor factor') of the weights in every state, and the states' log evidence."""

    log_weights: FloatArray  # (n, n_states)
    mean: FloatArray  # (n, n_states, d)
    factor: FloatArray  # (n, n_states, d, d)


def prior(model: LogisticLinear, n: int) -> ClickBelief:
    """Return the prior belief of `n` users."""
    roots = np.linalg.cholesky(model.covariances)
    log_weights = np.broadcast_to(model.log_state_prior, (n, model.n_states))
    return ClickBelief(
        log_weights.copy(),
        np.repeat(model.weights[None], n, axis=0),
        np.repeat(roots[None], n, axis=0),
    )


def click_probability(belief: ClickBelief, x: FloatArray, offset: FloatArray) -> FloatArray:
    """Return P(reward = 1) in every state `(n, n_states)`, for features `x` (n, d), offsets (n,).

    E expit(z) for z ~ N(m, v) is about expit(m / sqrt(1 + pi v / 8)) (MacKay 1992).
    """
    from scipy.special import expit

    score, variance, _, _ = _along(belief, x, offset)
    return expit(score / np.sqrt(1 + np.pi * variance / 8))


def condition(
    belief: ClickBelief, x: FloatArray, offset: FloatArray, reward: FloatArray
) -> ClickBelief:
    """Condition the belief on rewards `(n,)`, 0 or 1, of actions with features `x`."""
    from scipy.special import expit

    probability = click_probability(belief, x, offset)
    clicked = reward[:, None] == 1
    log_weights = belief.log_weights + np.log(np.where(clicked, probability, 1 - probability))
    score, variance, f, gain = _along(belief, x, offset)
    # The mode of r t - log(1 + e^t) - (t - score)^2 / (2 variance), by Newton's method.
    t = score
    for _ in range(_NEWTON_STEPS):
        rate = expit(t)
        curvature = rate * (1 - rate)
        slope = reward[:, None] - rate - (t - score) / variance
        t = t + slope / (curvature + 1 / variance)
    rate = expit(t)
    noise = 1 / np.maximum(rate * (1 - rate), 1e-12)  # variance of the pseudo-observation
    target = t + (reward[:, None] - rate) * noise
    total = variance + noise
    mean = belief.mean + gain * ((target - score) / total)[..., None]
    shrink = f / (total + np.sqrt(noise * total))[..., None]
    factor = belief.factor - np.einsum("nsd,nse->nsde", gain, shrink)
    return ClickBelief(log_weights, mean, factor)


def _along(
    belief: ClickBelief, x: FloatArray, offset: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the mean and variance of the score, L'x and L L'x, for every state."""
    score = (belief.mean @ x[:, :, None])[..., 0] + offset[:, None]
    f = (x[:, None, None, :] @ belief.factor)[:, :, 0]
    gain = (belief.factor @ f[..., None])[..., 0]
    return score, np.einsum("nsd,nsd->ns", f, f), f, gain
