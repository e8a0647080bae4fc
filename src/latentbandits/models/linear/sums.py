"""The posterior of a linear Gaussian model from sums over rounds, instead of round by round.

A population keeps sums per user; a model that is fitted later conditions on all of a user's rounds
at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.gaussian import LinearGaussian, LinearPosterior


class UserSums(NamedTuple):
    """Sums over the rounds of each of n users."""

    gram: FloatArray  # (n, d, d): sum x x'
    products: FloatArray  # (n, d): sum x r
    squares: FloatArray  # (n,): sum r^2
    counts: FloatArray  # (n,)


def condition_on_sums(model: LinearGaussian, sums: UserSums) -> tuple[FloatArray, LinearPosterior]:
    """Return the log marginal likelihood of each user's rewards `(n, S)`, and the posterior.

    With a prior N(m, L L'), G = sum xx', b = sum xr and noise sigma^2:
    A = I + L' G L / sigma^2 and v = L' (b - G m), the posterior is
    N(m + L A^-1 v / sigma^2, L A^-1 L'), and the log marginal likelihood is
    -T/2 log(2 pi sigma^2) - log|A|/2 - (|r - Xm|^2 - v' A^-1 v / sigma^2) / (2 sigma^2).
    The prior may be singular.

    >>> model = LinearGaussian([[0.0]], 1.0, [[[1.0]]])
    >>> one = UserSums(np.ones((1, 1, 1)), np.ones((1, 1)), np.ones(1), np.ones(1))
    >>> condition_on_sums(model, one)[1].mean
    array([[[0.5]]])
    """
    means, factors = model.parameters(len(sums.counts))
    noise = model.noise**2
    gram, products = sums.gram[:, None], sums.products[:, None]
    residual = products - (gram @ means[..., None])[..., 0]
    rest = sums.squares[:, None] - ((products + residual) * means).sum(axis=-1)
    inner = factors.swapaxes(-1, -2) @ gram @ factors / noise
    inner += np.eye(inner.shape[-1])
    cholesky = np.linalg.cholesky(inner)
    inverse = np.linalg.inv(cholesky)  # A^-1 = inverse' inverse
    root = factors @ inverse.swapaxes(-1, -2)  # posterior covariance = root root'
    projected = (root.swapaxes(-1, -2) @ residual[..., None])[..., 0]
    mean = means + (root @ projected[..., None])[..., 0] / noise
    log_det = np.log(np.diagonal(cholesky, axis1=-2, axis2=-1)).sum(axis=-1)
    explained = (projected * projected).sum(axis=-1) / noise
    log_evidence: FloatArray = -0.5 * (
        (sums.counts * math.log(2 * math.pi * noise))[:, None] + (rest - explained) / noise
    )
    log_evidence -= log_det
    return log_evidence, LinearPosterior(mean, root)
