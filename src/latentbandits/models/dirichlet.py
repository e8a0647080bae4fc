"""The Dirichlet normaliser, and what one more observation does to it. A beta is one of two."""

from __future__ import annotations

import numpy as np

from latentbandits.models.checks import FloatArray


def log_normaliser(phi: FloatArray) -> FloatArray:
    """Log of the product of Gamma(phi_c), over Gamma(sum phi).

    >>> log_normaliser(np.array([1.0, 1.0]))
    np.float64(0.0)
    """
    from scipy.special import gammaln

    log_z: FloatArray = gammaln(phi).sum(axis=-1) - gammaln(phi.sum(axis=-1))
    return log_z


def log_normaliser_step(before: FloatArray, one_hot: FloatArray) -> FloatArray:
    """Log Z(before + one_hot) - log Z(before) = log(phi_c / sum phi): the Gammas cancel.

    >>> float(np.exp(log_normaliser_step(np.array([3.0, 1.0]), np.array([1.0, 0.0]))))
    0.75
    """
    step: FloatArray = np.einsum("...c,...c->...", before, one_hot)
    step /= before @ np.ones(before.shape[-1])  # a short sum, several times faster than sum()
    log_step: FloatArray = np.log(step)
    return log_step
