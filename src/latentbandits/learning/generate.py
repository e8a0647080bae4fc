"""Generate ratings from a known model, of any size: for tests, demonstrations and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentbandits.environments.synthetic import separated_means
from latentbandits.learning.linear.completion import Completion, complete
from latentbandits.learning.logs.rows import Log
from latentbandits.models.checks import BoolArray, FloatArray, IntArray, positive_count
from latentbandits.models.linear.gaussian import LinearGaussian

_NOISE = 0.5  # of ratings
_BLOCK = 2**20  # ratings made at a time, to bound the memory of intermediate arrays


@dataclass(frozen=True, eq=False)
class GeneratedRatings:
    """A log of ratings, and the parameters that generated it.

    Ratings are N(user_vectors[u]'action_vectors[a], model.noise^2), and a user's vector is drawn
    from `model` given the user's state.
    """

    users: IntArray  # (n_ratings,), each pair of user and action at most once
    actions: IntArray  # (n_ratings,)
    rewards: FloatArray  # (n_ratings,)
    state: IntArray  # (n_users,)
    user_vectors: FloatArray  # (n_users, n_features)
    action_vectors: FloatArray  # (n_actions, n_features)
    groups: BoolArray  # (n_actions, n_groups): every action is in at least one
    model: LinearGaussian  # the true model

    def complete(self, **settings: Any) -> Completion:
        """Complete the matrix of these ratings (`learning.complete`)."""
        sizes = {"n_users": len(self.state), "n_actions": len(self.action_vectors)}
        return complete(self.users, self.actions, self.rewards, **(sizes | settings))


def generate_ratings(
    n_users: int,
    n_actions: int,
    n_states: int,
    *,
    density: float,
    n_features: int = 4,
    n_groups: int = 6,
    level: float = 3.5,
    separation: float = 1.0,
    spread: float = 0.3,
    seed: int = 0,
) -> GeneratedRatings:
    """Generate ratings of about a share `density` of all pairs, around `level`.

    The first feature is 1 for every action and about `level` for every user. The other features are
    tastes: they differ between states by `separation` and between users of one state by `spread`,
    per unit of rating. Users rate unequally many actions, and actions are unequally popular, as in
    real logs.

    >>> made = generate_ratings(n_users=100, n_actions=40, n_states=3, density=0.2, seed=1)
    >>> made.user_vectors.shape, made.action_vectors.shape
    ((100, 4), (40, 4))
    """
    for name, count in (("n_users", n_users), ("n_actions", n_actions), ("n_groups", n_groups)):
        positive_count(name, count)
    positive_count("n_states", n_states)
    if not 0 < density <= 0.5:
        raise ValueError(f"density must be above 0 and at most 0.5; got {density}")
    if n_features < 2:
        raise ValueError(f"n_features must be at least 2; got {n_features}")
    rng = np.random.default_rng(seed)
    scale = 1 / np.sqrt(n_features - 1)  # so that tastes move a rating by about their size
    centres = separation * rng.standard_normal((n_states, n_features))
    centres[:, 0] = level + 0.3 * rng.standard_normal(n_states)
    covariance = spread**2 * np.eye(n_features)
    shares = rng.dirichlet(np.full(n_states, 20.0))
    model = LinearGaussian(centres, _NOISE, np.stack([covariance] * n_states), shares)
    state = rng.choice(n_states, size=n_users, p=shares)
    user_vectors = centres[state] + spread * rng.standard_normal((n_users, n_features))
    action_vectors = scale * rng.standard_normal((n_actions, n_features))
    action_vectors[:, 0] = 1.0
    users, actions = _pairs(n_users, n_actions, density, rng)
    rewards = np.empty(len(users))
    for start in range(0, len(users), _BLOCK):
        block = slice(start, start + _BLOCK)
        means = np.einsum("nd,nd->n", user_vectors[users[block]], action_vectors[actions[block]])
        rewards[block] = means + _NOISE * rng.standard_normal(len(means))
    groups = rng.random((n_actions, n_groups)) < 1.5 / n_groups
    groups[np.arange(n_actions), rng.integers(n_groups, size=n_actions)] = True
    return GeneratedRatings(
        users, actions, rewards, state, user_vectors, action_vectors, groups, model
    )


def _pairs(
    n_users: int, n_actions: int, density: float, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw distinct pairs; activity of users and popularity of actions are gamma distributed.

    Pairs are drawn with replacement and repeats dropped, so that no matrix of all pairs is made.
    With equal rates -log(1 - d) for every pair, the expected share of distinct pairs is d.
    """
    activity = rng.gamma(2.0, size=n_users)
    popularity = rng.gamma(2.0, size=n_actions)
    rate = -np.log1p(-density) * n_users * n_actions
    counts = rng.poisson(rate * activity / activity.sum())
    users = np.repeat(np.arange(n_users), counts)
    edges = np.cumsum(popularity / popularity.sum())
    actions = np.minimum(np.searchsorted(edges, rng.random(len(users))), n_actions - 1)
    pairs = np.sort(users * n_actions + actions)
    distinct = np.append(True, pairs[1:] != pairs[:-1])
    return np.divmod(pairs[distinct], n_actions)


# Generate logs from known mixtures of arms: for tests, demonstrations and benchmarks.


@dataclass(frozen=True, eq=False)
class KnownArms:
    """A log, and the parameters that generated it."""

    log: Log
    means: FloatArray  # (n_states, n_actions)
    shares: FloatArray  # (n_states,)
    noise: float
    state: IntArray  # (n_users,)

    def labelled_means(self) -> FloatArray:
        """Return the per-state means estimated with the true labels (oracle)."""
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
    """Generate users of the paper's synthetic problem, logged by the uniformly random policy.

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
