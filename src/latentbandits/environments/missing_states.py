"""The synthetic problem with latent states that the model does not know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.environments.synthetic import Synthetic, SyntheticInstances
from latentbandits.models.arms.gaussian import GaussianArms


@dataclass(frozen=True)
class MissingStates:
    """The synthetic problem, with a model of all its states but the last ones.

    Args:
        problem: the synthetic problem.
        n_missing: number of states that the model lacks.

    >>> environment = MissingStates(Synthetic(model_noise=0.05), n_missing=1)
    >>> instances = environment.start(3, horizon=10, rng=np.random.default_rng(0))
    >>> instances.means.shape, instances.model.means.shape
    ((3, 5, 10), (3, 4, 10))
    """

    problem: Synthetic
    n_missing: int

    def __post_init__(self) -> None:
        if not 0 <= self.n_missing < self.problem.n_states:
            raise ValueError(
                f"n_missing must be from 0 to {self.problem.n_states - 1}; got {self.n_missing}"
            )

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> SyntheticInstances:
        runs = self.problem.start(n_runs, horizon, rng)
        known = self.problem.n_states - self.n_missing
        model = GaussianArms(runs.model.means[:, :known], runs.noise, runs.model.spread[:, :known])
        return SyntheticInstances(runs.means, model, runs.state, runs.noise)
