"""The two ways from a log to a model: a mixture of arms, and clusters of a completed matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from latentbandits.learning.linear.clusters import SMALLEST_CLUSTER, cluster_users
from latentbandits.learning.linear.completion import Completion, complete
from latentbandits.learning.linear.ridge_rows import Weighting
from latentbandits.learning.logs import Log
from latentbandits.learning.mixture import check_size, fit_mixture
from latentbandits.learning.spectral import fit_spectral
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.linear.gaussian import LinearGaussian

Method = Literal["em", "spectral"]


@dataclass(frozen=True, eq=False)
class Learned:
    """A model, and how its actions look to it."""

    model: GaussianArms | LinearGaussian
    features: FloatArray | None  # (n_actions, n_features); None: actions are numbered
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    shrinkage: FloatArray | None = None  # (n_states,): what was done to the covariances

    def rewards(self) -> FloatArray:
        """What every action pays in every state: `(n_states, n_actions)`."""
        if isinstance(self.model, GaussianArms):
            return self.model.means
        assert self.features is not None
        rewards: FloatArray = self.model.weights @ self.features.T
        return rewards


class Learner(Protocol):
    """A kind of model. `prepare` does what does not depend on the number of states."""

    def ranks(self, log: Log) -> tuple[int | None, ...]:
        """Those that are worth trying."""

    def prepare(self, log: Log, rank: int | None, seed: int) -> Any: ...

    def learn(
        self, prepared: Any, n_states: int, seed: int, near: Learned | None = None
    ) -> Learned:
        """The model of `n_states` states; `near` is a fit to almost the same log."""


@dataclass(frozen=True)
class ArmsLearner:
    """A mixture over users of per-state action means (`mixture`, `spectral`)."""

    method: Method = "em"
    noise: float | None = None
    n_restarts: int = 10

    def ranks(self, log: Log) -> tuple[None]:
        return (None,)

    def prepare(self, log: Log, rank: int | None, seed: int) -> Log:
        return log

    def learn(
        self, prepared: Log, n_states: int, seed: int, near: Learned | None = None
    ) -> Learned:
        check_size(prepared, n_states)
        if self.method == "spectral":
            fit = fit_spectral(prepared, n_states, noise=self.noise, seed=seed)
        else:
            start = near.model if near is not None else None
            assert start is None or isinstance(start, GaussianArms)
            n_restarts = self.n_restarts if start is None else 2
            fit = fit_mixture(
                prepared, n_states, noise=self.noise, n_restarts=n_restarts, start=start, seed=seed
            )
        counts = np.bincount(prepared.actions, minlength=prepared.n_actions)
        return Learned(fit.model, None, counts)


@dataclass(frozen=True)
class LinearLearner:
    """Clusters of the users' vectors in the completed user x action matrix (Section 5.2)."""

    reg: float
    weighting: Weighting = "plain"
    biases: bool = True
    sweeps: int = 20
    noise: float | None = None

    def ranks(self, log: Log) -> tuple[int, ...]:
        return tuple(r for r in (1, 2, 5, 10, 20) if r <= min(log.n_users, log.n_actions))

    def prepare(self, log: Log, rank: int | None, seed: int) -> Completion:
        assert rank is not None
        return complete(
            log.users,
            log.actions,
            log.rewards,
            rank=rank,
            reg=self.reg,
            weighting=self.weighting,
            biases=self.biases,
            sweeps=self.sweeps,
            n_users=log.n_users,
            n_actions=log.n_actions,
            seed=seed,
        )

    def learn(
        self, prepared: Completion, n_states: int, seed: int, near: Learned | None = None
    ) -> Learned:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "openmp"):  # k-means' threads wait for each other on small data
            # A refit is compared by its means, which need no covariance of many users.
            smallest = SMALLEST_CLUSTER if near is None else 2
            clusters = cluster_users(
                prepared, n_states, noise=self.noise, smallest=smallest, seed=seed
            )
        counts = prepared.action_counts
        return Learned(clusters.model, prepared.action_vectors, counts, clusters.shrinkage)
