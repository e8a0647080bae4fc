"""Logs of arms whose truth is known: for tests, demonstrations and measuring what data allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentbandits.environments.synthetic import separated_means
from latentbandits.learning.logs import Log
from latentbandits.models.checks import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class KnownArms:
    """A log, and what it was drawn from."""

    log: Log
    means: FloatArray  # (n_states, n_actions)
    shares: FloatArray  # (n_states,)
    noise: float
    state: IntArray  # (n_users,)

    def labelled_means(self) -> FloatArray:
        """The means that who knows every user's state would estimate: what the data allow."""
        n_states, n_actions = self.means.shape
        cell = self.state[self.log.users] * n_actions + self.log.actions
        size = n_states * n_actions
        counts = np.bincount(cell, minlength=size)
        means = np.bincount(cell, self.log.rewards, minlength=size) / np.maximum(counts, 1)
        return means.reshape(n_states, n_actions)


def generate_arms(
    n_users: int = 5_000,
    n_rounds: int = 30,
    n_states: int = 5,
    n_actions: int = 10,
    *,
    noise: float = 0.5,
    seed: int = 0,
) -> KnownArms:
    """Users of the paper's synthetic problem, logged by a policy that plays uniformly at random.

    >>> generate_arms(n_users=100, n_rounds=20).log.n_events
    2000
    """
    rng = np.random.default_rng(seed)
    means = separated_means(n_states, n_actions, 0.1, rng)
    shares = rng.dirichlet(np.full(n_states, 5.0))
    state = rng.choice(n_states, size=n_users, p=shares)
    users = np.repeat(np.arange(n_users), n_rounds)
    actions = rng.integers(n_actions, size=len(users))
    rewards = means[state[users], actions] + noise * rng.standard_normal(len(users))
    ids = tuple(str(u) for u in range(n_users)), tuple(str(a) for a in range(n_actions))
    return KnownArms(Log(users, actions, rewards, *ids), means, shares, noise, state)
