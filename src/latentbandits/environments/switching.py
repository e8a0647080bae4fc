"""The synthetic problem with a latent state that moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.environments.synthetic import Synthetic
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray


@dataclass(frozen=True)
class Switching:
    """The synthetic problem with a state that moves to one of the others, each equally likely.

    Args:
        problem: the synthetic problem.
        probability: of a move before a round.
        kind: "markov": the state moves before each round with this probability. "piecewise": it
            moves in as many rounds as that makes on average, drawn at random, so that every run has
            the same number of changes.

    >>> environment = Switching(Synthetic(model_noise=0.05), 0.02, "piecewise")
    >>> instances = environment.start(3, horizon=100, rng=np.random.default_rng(0))
    >>> (np.diff(instances.states, axis=1) != 0).sum(axis=1)
    array([2, 2, 2])
    """

    problem: Synthetic
    probability: float
    kind: Literal["markov", "piecewise"]

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must be in [0, 1]; got {self.probability}")

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> SwitchingInstances:
        instances = self.problem.start(n_runs, horizon, rng)
        moves = self._moves(n_runs, horizon, rng)
        steps = rng.integers(1, max(self.problem.n_states, 2), size=(n_runs, horizon)) * moves
        states = (instances.state[:, None] + steps.cumsum(axis=1)) % self.problem.n_states
        return SwitchingInstances(instances.means, instances.model, states, instances.noise)

    def _moves(self, n_runs: int, horizon: int, rng: np.random.Generator) -> IntArray:
        """Return 1 for rounds before which the state moves, else 0; the first round is 0."""
        chance = rng.random((n_runs, horizon))
        chance[:, 0] = np.inf
        if self.kind == "markov":
            return (chance < self.probability).astype(np.int64)
        n_changes = round(self.probability * horizon)
        return (chance.argsort(axis=1).argsort(axis=1) < n_changes).astype(np.int64)


@dataclass(frozen=True, eq=False)
class SwitchingInstances:
    """Runs of a switching problem, and the state of each in every round."""

    means: FloatArray  # (n_runs, n_states, n_actions)
    model: GaussianArms
    states: IntArray  # (n_runs, horizon)
    noise: float

    def round(self, t: int, rng: np.random.Generator) -> Round:
        means = self.means[np.arange(len(self.states)), self.states[:, t]]
        return Round(None, means, means + self.noise * rng.standard_normal(means.shape))
