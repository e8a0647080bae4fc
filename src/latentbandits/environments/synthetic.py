"""The paper's synthetic problem (Section 5.1): a fresh instance for every run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray


@dataclass(frozen=True)
class Synthetic:
    """Means Uniform(0, 1), redrawn per state until the best leads by `gap`; Gaussian rewards.

    The policies are given the means with errors N(0, model_noise^2), as a model with that spread.

    Args:
        model_noise: standard deviation of the errors of the means that the policies are given.
        n_actions: number of actions K.
        n_states: number of states S.
        noise: standard deviation of a reward.
        gap: least distance of a state's best mean from its second best.

    >>> instances = Synthetic(model_noise=0.2).start(3, horizon=10, rng=np.random.default_rng(0))
    >>> instances.means.shape, instances.model.means.shape
    ((3, 5, 10), (3, 5, 10))
    """

    model_noise: float
    n_actions: int = 10
    n_states: int = 5
    noise: float = 0.5
    gap: float = 0.1

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> SyntheticInstances:
        means = separated_means(n_runs * self.n_states, self.n_actions, self.gap, rng)
        means = means.reshape(n_runs, self.n_states, self.n_actions)
        estimate = means + self.model_noise * rng.standard_normal(means.shape)
        model = GaussianArms(estimate, self.noise, self.model_noise)
        state = rng.integers(self.n_states, size=n_runs)
        return SyntheticInstances(means, model, state, self.noise)


@dataclass(frozen=True, eq=False)
class SyntheticInstances:
    """Runs of the synthetic problem: their true means and states, and the policies' model."""

    means: FloatArray  # (n_runs, n_states, n_actions)
    model: GaussianArms
    state: IntArray  # (n_runs,), or (n_runs, horizon) if it moves
    noise: float

    def round(self, t: int, rng: np.random.Generator) -> Round:
        state = self.state if self.state.ndim == 1 else self.state[:, t]
        means = self.means[np.arange(len(state)), state]
        return Round(None, means, means + self.noise * rng.standard_normal(means.shape))


def separated_means(
    n_rows: int, n_actions: int, gap: float, rng: np.random.Generator
) -> FloatArray:
    """Draw rows of Uniform(0, 1) whose best is at least `gap` above the second best."""
    means = rng.random((n_rows, n_actions))
    while n_actions > 1:
        top = np.partition(means, n_actions - 2, axis=1)[:, -2:]
        rejected = top[:, 1] - top[:, 0] < gap
        if not rejected.any():
            break
        means[rejected] = rng.random((int(rejected.sum()), n_actions))
    return means


# The synthetic problem with a latent state that moves.


@dataclass(frozen=True)
class Switching:
    """The synthetic problem with a state that moves to one of the others, each equally likely.

    Args:
        problem: the synthetic problem.
        probability: probability of a move before a round.
        kind: "markov": the state moves before each round with this probability. "piecewise": it
            moves in randomly drawn rounds, in every run as many as "markov" has on average.

    >>> environment = Switching(Synthetic(model_noise=0.05), 0.02, "piecewise")
    >>> instances = environment.start(3, horizon=100, rng=np.random.default_rng(0))
    >>> (np.diff(instances.state, axis=1) != 0).sum(axis=1)
    array([2, 2, 2])
    """

    problem: Synthetic
    probability: float
    kind: Literal["markov", "piecewise"]

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must be in [0, 1]; got {self.probability}")

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> SyntheticInstances:
        instances = self.problem.start(n_runs, horizon, rng)
        moves = self._moves(n_runs, horizon, rng)
        steps = rng.integers(1, max(self.problem.n_states, 2), size=(n_runs, horizon)) * moves
        states = (instances.state[:, None] + steps.cumsum(axis=1)) % self.problem.n_states
        return replace(instances, state=states)

    def _moves(self, n_runs: int, horizon: int, rng: np.random.Generator) -> IntArray:
        """Return 1 for rounds before which the state moves, else 0; the first round is 0."""
        chance = rng.random((n_runs, horizon))
        chance[:, 0] = np.inf
        if self.kind == "markov":
            return (chance < self.probability).astype(np.int64)
        n_changes = round(self.probability * horizon)
        return (chance.argsort(axis=1).argsort(axis=1) < n_changes).astype(np.int64)
