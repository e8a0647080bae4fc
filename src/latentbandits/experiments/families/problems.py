"""A synthetic problem for every registered family: 5 states, 10 actions, drawn from its prior."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from latentbandits.environments.from_prior import FromPrior
from latentbandits.environments.protocol import Environment
from latentbandits.environments.synthetic import Synthetic
from latentbandits.models.registry import kinds

N_STATES, N_ACTIONS, N_FEATURES = 5, 10, 5


def _problem(kind: Any) -> FromPrior:
    """Return a family's problem: fresh arms in every run, or one model with features for all."""
    if not kind.summary.has_features:
        return FromPrior(partial(_fresh, kind))
    return FromPrior(partial(_shared, kind), N_ACTIONS)


def _fresh(kind: Any, n_runs: int, rng: np.random.Generator) -> Any:
    return kind.random(rng, n_runs, N_STATES, N_ACTIONS)


def _shared(kind: Any, n_runs: int, rng: np.random.Generator) -> Any:
    return kind.random(np.random.default_rng(0), N_STATES, N_FEATURES)


_FAMILIES = {name: kind for name, kind in kinds().items() if hasattr(kind, "random")}

PROBLEMS: dict[str, Environment] = {
    name: _problem(kind) for name, kind in _FAMILIES.items() if name != "GaussianArms"
} | {"GaussianArms": Synthetic(model_noise=0.2, gap=0.0)}
"""The problem of each family. In the paper's, means have errors N(0, sigma0^2), known in size."""

SUB_GAUSSIAN = {
    name: kind.random(np.random.default_rng(0), N_STATES, N_FEATURES).noise
    for name, kind in _FAMILIES.items()
    if kind.summary.sub_gaussian
}
"""Families whose rewards have a sub-Gaussian scale, which the regret bounds need."""
