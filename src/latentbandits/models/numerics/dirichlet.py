"""Dirichlet distributions: draws and log normaliser. Two categories are a beta distribution."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray

_UNDERFLOWS = 0.05  # a gamma draw of a smaller shape can be zero in floating point


def log_normaliser(phi: FloatArray) -> FloatArray:
    """Return the log of prod_c Gamma(phi_c) / Gamma(sum phi).

    >>> log_normaliser(np.array([1.0, 1.0]))
    np.float64(0.0)
    """
    from scipy.special import gammaln

    log_z: FloatArray = gammaln(phi).sum(axis=-1) - gammaln(phi.sum(axis=-1))
    return log_z


def expected_log(phi: FloatArray) -> FloatArray:
    """Return E[log p_c] under Dirichlet(phi), the gradient of `log_normaliser`.

    >>> expected_log(np.array([1.0, 1.0]))
    array([-1., -1.])
    """
    from scipy.special import digamma

    expected: FloatArray = digamma(phi) - digamma(phi.sum(axis=-1, keepdims=True))
    return expected


def divergence(after: FloatArray, before: FloatArray) -> FloatArray:
    """Return KL(Dirichlet(after) || Dirichlet(before)).

    >>> divergence(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    np.float64(0.0)
    """
    gain = ((after - before) * expected_log(after)).sum(axis=-1)
    kl: FloatArray = gain - log_normaliser(after) + log_normaliser(before)
    return kl


def log_normaliser_step(prior: FloatArray, totals: FloatArray, one_hot: FloatArray) -> FloatArray:
    """Return log Z(phi + one_hot) - log Z(phi) = log(phi_c / sum phi).

    phi is prior + totals, (..., C). The Gamma functions cancel. Sums are taken first because all
    states share the totals.

    >>> prior, totals, one_hot = np.array([[2.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    >>> float(np.exp(log_normaliser_step(prior, totals, one_hot)))
    0.75
    """
    step: FloatArray = np.einsum("...c,...c->...", prior, one_hot)
    step += np.einsum("...c,...c->...", totals, one_hot)
    step /= np.einsum("...c->...", prior) + np.einsum("...c->...", totals)
    return np.log(step)


def unnormalised(phi: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw a vector proportional to Dirichlet(phi) for every phi; its sum is not zero.

    >>> bool((unnormalised(np.full((5, 2), 1e-6), np.random.default_rng(0)).sum(axis=1) > 0).all())
    True
    """
    if phi.min() >= _UNDERFLOWS:
        return rng.standard_gamma(phi)
    log_draws = np.log(rng.standard_gamma(phi + 1))  # log G(a) = log G(a + 1) + log(U) / a
    log_draws -= rng.standard_exponential(phi.shape) / phi
    draws: FloatArray = np.exp(log_draws - log_draws.max(axis=-1, keepdims=True))
    return draws
