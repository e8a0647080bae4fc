"""Reduce a model to one state whose prior has the same mean and covariance."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.composed.transformed import TransformedRewards
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.linear.logistic import LogisticLinear
from latentbandits.models.protocol import Model


def one_state_model(model: Any) -> Model | None:
    """Return the one-state model whose prior matches the moments of `model` over its states.

    mean = sum_s P1(s) m_s and covariance = sum_s P1(s) (C_s + (m_s - mean)(m_s - mean)'). Its
    posterior mean is what folding a new user into the completed matrix predicts. For transformed
    rewards, the moments are those of f(r). None for a kind of model that has no such form.

    >>> model = GaussianArms([[1.0], [3.0]], noise=0.5, spread=1.0)
    >>> alone = one_state_model(model)
    >>> alone.means, alone.spread ** 2
    (array([[2.]]), array([[2.]]))
    """
    if isinstance(model, TransformedRewards):
        inner = one_state_model(model.model)
        return None if inner is None else type(model)(inner, model.smearing, model.level)
    if isinstance(model, (LinearGaussian, LogisticLinear)):
        prior = model.state_prior
        mean = prior @ model.weights
        offsets = model.weights - mean
        covariance = np.tensordot(prior, model.covariances, axes=1)
        covariance = covariance + np.einsum("s,si,sj->ij", prior, offsets, offsets)
        if isinstance(model, LogisticLinear):
            return LogisticLinear(
                mean[None],
                covariance[None],
                model.n_particles,
                model.n_moves,
                model.seed,
                offset=model.offset,
            )
        return LinearGaussian(mean[None], model.noise, covariance[None])
    if isinstance(model, GaussianArms):
        means, variances = model.means, model.spread**2
    elif hasattr(model, "vague"):
        means, variances = (part[0] for part in model.posterior_rewards(model.parameters(1), None))
    else:
        return None
    prior = np.exp(model.log_state_prior[0])
    mean = prior @ means
    spread = np.sqrt(prior @ (variances + (means - mean) ** 2))
    if isinstance(model, GaussianArms):
        return GaussianArms(mean[None], model.noise, spread[None])
    from_means = getattr(type(model), "from_means", None)
    if from_means is None or not (spread > 0).all():
        vague: Model = model.vague()
        return vague
    alone: Model = from_means(mean[None], spread[None])
    return alone
