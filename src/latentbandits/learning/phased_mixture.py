"""The builder of `Phased` with the mixture learner, for the policy registry."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentbandits.learning.population_mixture import PopulationMixture
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.policies.population import Phased
from latentbandits.policies.registry import Inputs, build, parse


def build_phased(
    n_users: int,
    n_features: int,
    noise: float,
    scale: float = 1.0,
    n_components: int = 15,
    deploy: str = "mmBayesUCB(quantile=0.84)",
    first: int = 2000,
    factor: float = 2.0,
    seed: int = 0,
) -> Phased:
    """Build Phased with the mixture learner.

    `deploy` also plays the first phase, on the prior N(0, scale^2 I). `scale` is the standard
    deviation of a weight over the population. If the belief of `deploy` cannot be computed from
    sums (EXP4), mmBayesUCB plays the first phase instead.
    """
    spec = parse(deploy)

    def deployed(model: LinearGaussian) -> Any:
        return build(spec, Inputs(model))

    prior = LinearGaussian(np.zeros((1, n_features)), noise, scale**2 * np.eye(n_features)[None])
    learner = PopulationMixture(n_components, noise, scale, seed=seed)
    start = "mmBayesUCB(quantile=0.84)" if spec.name == "EXP4" else spec
    first_policy: Any = build(start, Inputs(prior))
    return Phased(first_policy, learner, deployed, n_users, n_features, first=first, factor=factor)
