"""Users whose mean reward for every action is known: drawn from a model, or a log completed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.environments.protocol import Round
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, positive_number


@dataclass(frozen=True, eq=False)
class KnownUsers:
    """Rewards N(means[i, a], noise^2) of user i for action a, each run a user at random.

    Args:
        model: the model that policies use.
        means: true mean rewards, `(n_users, n_actions)`.
        noise: standard deviation of a reward.
        eligible: `(n_actions,)`, the actions that are offered; None: all.

    >>> model = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5)
    >>> environment = KnownUsers(model, means=np.array([[1.0, 0.0], [0.1, 0.7]]), noise=0.5)
    >>> rng = np.random.default_rng(0)
    >>> environment.start(3, horizon=10, rng=rng).round(0, rng).means.shape
    (3, 2)
    """

    model: GaussianArms  # the model that policies use
    means: FloatArray  # (n_users, n_actions): true means
    noise: float
    eligible: BoolArray | None = None  # (n_actions,)

    def __post_init__(self) -> None:
        positive_number("noise", self.noise)
        if self.means.ndim != 2 or self.means.shape[1] != self.model.n_actions:
            raise ValueError(
                f"means must be of shape (n_users, {self.model.n_actions}), as the model's "
                f"actions; got {self.means.shape}"
            )

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> KnownUsersInstances:
        return KnownUsersInstances(self, rng.integers(len(self.means), size=n_runs))


@dataclass(frozen=True, eq=False)
class KnownUsersInstances:
    """Runs under way: the user of each."""

    environment: KnownUsers
    user: IntArray  # (n_runs,)

    @property
    def model(self) -> GaussianArms:
        return self.environment.model

    def round(self, t: int, rng: np.random.Generator) -> Round:
        env = self.environment
        means = env.means[self.user]
        rewards = means + env.noise * rng.standard_normal(means.shape)
        if env.eligible is None:
            return Round(None, means, rewards)
        return Round(None, means, rewards, np.broadcast_to(env.eligible, means.shape))
